"""Remote shards: cached on disk, verified and within a limit, or read by ranges where the cache is too small."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.trainer import datasets
from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import manifest as manifests
from trainyard.trainer.data.cache import ShardCache, cache_directory
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.data.order import Order
from trainyard.trainer.data.split_reader import SplitReader

ROWS = 400


@pytest.fixture
def local(tmp_path: Path) -> str:
    columns = {
        "x": np.random.default_rng(0).random((ROWS, 8), np.float32),
        "number": np.arange(ROWS),
        "list": [np.full(number % 5, number) for number in range(ROWS)],
        "file": [number.to_bytes(2) for number in range(ROWS)],
    }
    return datasets.write(tmp_path / "local", {"train": columns}, rows_per_batch=16, shards=4)


@pytest.fixture
def remote(local: str, tmp_path: Path) -> Iterator[str]:
    """The same dataset on a file system that is not this machine's disk."""
    uri = f"memory://{tmp_path}"
    fsspec.filesystem("memory").put(str(storage.local_path(local)), str(tmp_path), recursive=True)
    yield uri
    fsspec.filesystem("memory").rm(str(tmp_path), recursive=True)


def epoch(dataset: SplitReader, shuffle: bool = True) -> list[list[int]]:
    order = Order(dataset.blocks, batch=32, seed=0, window=2, shuffle=shuffle)
    numbers = []
    for batch in Loader(dataset, order, decode={"file": number}).epoch(0):
        numbers.append(batch.columns["number"].tolist())
        assert batch.columns["list"].sum(1).tolist() == [number * (number % 5) for number in numbers[-1]]
        assert batch.columns["file"].tolist() == numbers[-1]
    return numbers


def number(data: bytes) -> np.ndarray[Any, Any]:
    return np.array(int.from_bytes(data))


def dataset(uri: str, cache: ShardCache | None = None) -> SplitReader:
    return SplitReader(uri, manifests.read_current(uri), "train", ("x", "number", "list", "file"), cache=cache)


@pytest.mark.parametrize("limit", [1 << 30, 1000], ids=["cached", "by ranges"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_remote_batches_equal_local_ones(local: str, remote: str, tmp_path: Path, limit: int, shuffle: bool) -> None:
    reader = dataset(remote, ShardCache(tmp_path / "cache", limit))
    assert epoch(reader, shuffle) == epoch(dataset(local), shuffle)
    assert epoch(reader, shuffle) == epoch(dataset(local), shuffle), "a second epoch"
    files = [p for p in (tmp_path / "cache").glob("*") if not p.suffix]
    assert len(files) == (4 if limit > 1000 else 0)


def test_a_shard_that_several_workers_request_is_downloaded_once(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    read = storage.read_range

    def counted(uri: str, begin: int, length: int) -> bytes:
        reads.append(uri)
        return read(uri, begin, length)

    monkeypatch.setattr(storage, "read_range", counted)
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = storage.join(remote, shard.path)
    with ThreadPoolExecutor(8) as workers:
        paths = set(workers.map(lambda _: ShardCache(tmp_path, 1 << 30).fetch(uri, shard), range(8)))
    assert reads == [uri] and len(paths) == 1
    assert paths.pop().read_bytes() == storage.read(uri)


def test_the_least_recently_used_shard_is_removed_first(remote: str, tmp_path: Path) -> None:
    shards = manifests.read_current(remote).split("train").shards
    folder = tmp_path / "cache"
    cache = ShardCache(folder, max(shard.bytes for shard in shards) * 2)
    first, second, third = shards[:3]
    for shard in (first, second, first, third):
        cache.fetch(storage.join(remote, shard.path), shard)
    assert {p.name for p in folder.iterdir() if not p.suffix} == {first.sha256, third.sha256}


def test_workers_that_evict_each_others_shards_read_all_of_them(remote: str, tmp_path: Path) -> None:
    shards = manifests.read_current(remote).split("train").shards
    content = {shard.path: storage.read(storage.join(remote, shard.path)) for shard in shards}
    cache = ShardCache(tmp_path / "cache", max(shard.bytes for shard in shards) * 2)

    def read_shards(seed: int) -> int:
        complete = 0
        for number in np.random.default_rng(seed).integers(0, len(shards), 50):
            path = cache.fetch(storage.join(remote, shards[number].path), shards[number])
            with suppress(FileNotFoundError):
                assert path.read_bytes() == content[shards[number].path]
                complete += 1
        return complete

    with ThreadPoolExecutor(8) as workers:
        assert all(workers.map(read_shards, range(8)))


def test_an_altered_shard_is_refused_and_not_cached(remote: str, tmp_path: Path) -> None:
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = storage.join(remote, shard.path)
    storage.replace(uri, bytes(shard.bytes))
    with pytest.raises(TrainyardError, match=r"was altered: its sha256 differs"):
        ShardCache(tmp_path / "cache", 1 << 30).fetch(uri, shard)
    assert [p for p in (tmp_path / "cache").iterdir() if p.suffix != ".lock"] == []


def test_a_partial_download_of_a_killed_worker_is_replaced(remote: str, tmp_path: Path) -> None:
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = storage.join(remote, shard.path)
    (tmp_path / f"{shard.sha256}.partial").write_bytes(b"half")
    assert ShardCache(tmp_path, 1 << 30).fetch(uri, shard).read_bytes() == storage.read(uri)


@pytest.mark.parametrize("limit", [1 << 30, 1000], ids=["cached", "by ranges"])
def test_the_error_for_a_missing_shard_names_it(remote: str, tmp_path: Path, limit: int) -> None:
    reader = dataset(remote, ShardCache(tmp_path, limit))
    missing = storage.join(remote, manifests.read_current(remote).split("train").shards[0].path)
    storage.remove(missing)
    with pytest.raises(TrainyardError, match=f"{missing} does not exist, but the manifest names it"):
        epoch(reader)


def test_on_yarn_the_cache_is_in_the_folder_of_the_application() -> None:
    folders = "/d1/appcache/a1,/d2/appcache/a1"
    assert cache_directory({"LOCAL_DIRS": folders}) == Path("/d1/appcache/a1/trainyard-shards")
