"""Remote shards: kept on disk whole, verified, within a limit; read by ranges where that does not hold them."""

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
from trainyard.trainer.data.cache import ShardCache, directory
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
    for share in Loader(dataset, order, decode={"file": number}).epoch(0):
        numbers.append(share.columns["number"].tolist())
        assert share.columns["list"].sum(1).tolist() == [number * (number % 5) for number in numbers[-1]]
        assert share.columns["file"].tolist() == numbers[-1]
    return numbers


def number(data: bytes) -> np.ndarray[Any, Any]:
    return np.array(int.from_bytes(data))


def dataset(uri: str, cache: ShardCache | None = None) -> SplitReader:
    return SplitReader(uri, manifests.read_current(uri), "train", ("x", "number", "list", "file"), cache=cache)


@pytest.mark.parametrize("limit", [1 << 30, 1000], ids=["kept", "by ranges"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_remote_batches_are_the_local_ones(local: str, remote: str, tmp_path: Path, limit: int, shuffle: bool) -> None:
    found = dataset(remote, ShardCache(tmp_path / "cache", limit))
    assert epoch(found, shuffle) == epoch(dataset(local), shuffle)
    assert epoch(found, shuffle) == epoch(dataset(local), shuffle), "and in a second epoch"
    kept = [p for p in (tmp_path / "cache").glob("*") if not p.suffix]
    assert len(kept) == (4 if limit > 1000 else 0)


def test_a_shard_that_several_ranks_want_is_fetched_once(
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
    with ThreadPoolExecutor(8) as ranks:
        paths = set(ranks.map(lambda _: ShardCache(tmp_path, 1 << 30).fetch(uri, shard), range(8)))
    assert reads == [uri] and len(paths) == 1
    assert paths.pop().read_bytes() == storage.read(uri)


def test_the_shard_that_was_used_longest_ago_makes_room(remote: str, tmp_path: Path) -> None:
    shards = manifests.read_current(remote).split("train").shards
    folder = tmp_path / "cache"
    cache = ShardCache(folder, max(shard.bytes for shard in shards) * 2)
    first, second, third = shards[:3]
    for shard in (first, second, first, third):
        cache.fetch(storage.join(remote, shard.path), shard)
    assert {p.name for p in folder.iterdir() if not p.suffix} == {first.sha256, third.sha256}


def test_ranks_that_push_each_others_shards_out_lose_nothing(remote: str, tmp_path: Path) -> None:
    shards = manifests.read_current(remote).split("train").shards
    content = {shard.path: storage.read(storage.join(remote, shard.path)) for shard in shards}
    cache = ShardCache(tmp_path / "cache", max(shard.bytes for shard in shards) * 2)

    def rank(seed: int) -> int:
        whole = 0
        for number in np.random.default_rng(seed).integers(0, len(shards), 50):
            path = cache.fetch(storage.join(remote, shards[number].path), shards[number])
            with suppress(FileNotFoundError):
                assert path.read_bytes() == content[shards[number].path]
                whole += 1
        return whole

    with ThreadPoolExecutor(8) as ranks:
        assert all(ranks.map(rank, range(8)))


def test_a_shard_that_was_altered_is_refused_and_not_kept(remote: str, tmp_path: Path) -> None:
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = storage.join(remote, shard.path)
    storage.replace(uri, bytes(shard.bytes))
    with pytest.raises(TrainyardError, match=r"was altered: its sha256 differs"):
        ShardCache(tmp_path / "cache", 1 << 30).fetch(uri, shard)
    assert [p for p in (tmp_path / "cache").iterdir() if p.suffix != ".lock"] == []


def test_what_a_killed_rank_left_half_is_fetched_anew(remote: str, tmp_path: Path) -> None:
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = storage.join(remote, shard.path)
    (tmp_path / f"{shard.sha256}.partial").write_bytes(b"half")
    assert ShardCache(tmp_path, 1 << 30).fetch(uri, shard).read_bytes() == storage.read(uri)


@pytest.mark.parametrize("limit", [1 << 30, 1000], ids=["kept", "by ranges"])
def test_a_shard_that_is_gone_is_named(remote: str, tmp_path: Path, limit: int) -> None:
    found = dataset(remote, ShardCache(tmp_path, limit))
    gone = storage.join(remote, manifests.read_current(remote).split("train").shards[0].path)
    storage.remove(gone)
    with pytest.raises(TrainyardError, match=f"{gone} is gone, but the manifest names it"):
        epoch(found)


def test_on_yarn_shards_lie_in_the_folder_that_ends_with_the_application() -> None:
    assert directory({"LOCAL_DIRS": "/d1/appcache/a1,/d2/appcache/a1"}) == Path("/d1/appcache/a1/trainyard-shards")
