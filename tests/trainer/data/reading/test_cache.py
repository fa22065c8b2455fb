"""Remote shards: cached on disk, verified and within a limit, or read by ranges where the cache is too small."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data import loader
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.data.order import Order
from trainyard.trainer.data.reading import cache as caches
from trainyard.trainer.data.reading import split_reader
from trainyard.trainer.data.reading.cache import FOLDER, CacheFullError, ShardCache
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.folders import name_folder

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


def record_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the URI of each range that is read from now on."""
    reads: list[str] = []
    read = storage.read_range

    def record(uri: str, begin: int, length: int) -> bytes:
        reads.append(uri)
        return read(uri, begin, length)

    monkeypatch.setattr(storage, "read_range", record)
    return reads


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
    reads = record_reads(monkeypatch)
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = uris.join(remote, shard.path)
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
        cache.fetch(uris.join(remote, shard.path), shard)
    assert {p.name for p in folder.iterdir() if not p.suffix} == {first.sha256, third.sha256}


def test_workers_that_evict_each_others_shards_read_all_of_them(remote: str, tmp_path: Path) -> None:
    shards = manifests.read_current(remote).split("train").shards
    content = {shard.path: storage.read(uris.join(remote, shard.path)) for shard in shards}
    cache = ShardCache(tmp_path / "cache", max(shard.bytes for shard in shards) * 2)

    def read_shards(seed: int) -> int:
        complete = 0
        for number in np.random.default_rng(seed).integers(0, len(shards), 50):
            path = cache.fetch(uris.join(remote, shards[number].path), shards[number])
            with suppress(FileNotFoundError):
                assert path.read_bytes() == content[shards[number].path]
                complete += 1
        return complete

    with ThreadPoolExecutor(8) as workers:
        assert all(workers.map(read_shards, range(8)))


def test_an_altered_shard_is_refused_and_not_cached(remote: str, tmp_path: Path) -> None:
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = uris.join(remote, shard.path)
    storage.replace(uri, bytes(shard.bytes))
    with pytest.raises(TrainyardError, match=r"was altered: its sha256 differs"):
        ShardCache(tmp_path / "cache", 1 << 30).fetch(uri, shard)
    assert [p for p in (tmp_path / "cache").iterdir() if p.suffix != ".lock"] == []


def deleted_maps(folder: Path) -> list[str]:
    """Return the files of a folder that this process has mapped, and that were removed: they still occupy the disk."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if line.endswith("(deleted)") and str(folder) in line]


def test_a_mapped_shard_is_not_removed_so_that_the_disk_space_stays_within_the_limit(
    remote: str, tmp_path: Path
) -> None:
    shards = manifests.read_current(remote).split("train").shards
    folder = tmp_path / "cache"
    cache = ShardCache(folder, max(shard.bytes for shard in shards) * 2 + 4096)
    names = [uris.join(remote, shard.path) for shard in shards]
    maps = [cache.map(uri, shard) for uri, shard in zip(names[:2], shards, strict=False)]
    views = [memoryview(one) for one in maps]
    del maps
    with pytest.raises(CacheFullError, match=r"no room for .* cache_gb is .* set it to .* or more"):
        cache.map(names[2], shards[2])
    with pytest.raises(CacheFullError):  # another cache of the same folder, as another worker has it
        ShardCache(folder, cache.limit).fetch(names[2], shards[2])
    assert bytes(views[0]) == storage.read(names[0]) and bytes(views[1]) == storage.read(names[1])
    assert not deleted_maps(folder)
    views.pop(0).release()
    assert bytes(cache.map(names[2], shards[2])) == storage.read(names[2])
    assert {p.name for p in folder.iterdir() if not p.suffix} == {shards[1].sha256, shards[2].sha256}


def test_a_changed_file_is_downloaded_again(remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[object] = []
    digest = hashlib.file_digest

    def record(file: Any, name: Any) -> Any:
        hashed.append(file)
        return digest(file, name)

    monkeypatch.setattr(hashlib, "file_digest", record)
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = uris.join(remote, shard.path)
    content = storage.read(uri)
    for _ in range(3):
        file = ShardCache(tmp_path / "cache", 1 << 30).fetch(uri, shard)
    assert not hashed, "a file that has not changed is not read again"
    for altered in (bytes(shard.bytes), content[:-1]):
        file.write_bytes(altered)
        assert ShardCache(tmp_path / "cache", 1 << 30).fetch(uri, shard).read_bytes() == content
    file.write_bytes(content)  # changed, and right
    inode = file.stat().st_ino
    hashed.clear()
    for _ in range(3):
        assert ShardCache(tmp_path / "cache", 1 << 30).fetch(uri, shard).stat().st_ino == inode
    assert len(hashed) == 1


def test_a_folder_that_others_own_or_can_write_to_is_refused(remote: str, tmp_path: Path) -> None:
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = uris.join(remote, shard.path)
    ShardCache(tmp_path / "own", 1 << 30).fetch(uri, shard)
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path / "own")
    problems = {"open": r"can be written to by other users \(its mode is 777", "link": "is not a directory"}
    if os.geteuid() == 0:
        (tmp_path / "other").mkdir()
        os.chown(tmp_path / "other", 65534, 65534)
        problems["other"] = "belongs to the user with id 65534, not to 0"
    for name, problem in problems.items():
        with pytest.raises(TrainyardError, match=rf"{name}, the folder for shards .* {problem}.* Remove it"):
            ShardCache(tmp_path / name, 1 << 30).fetch(uri, shard)
        assert name == "link" or list((tmp_path / name).iterdir()) == []


def test_the_space_of_an_abandoned_download_is_used_again(remote: str, tmp_path: Path) -> None:
    shards = manifests.read_current(remote).split("train").shards
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache" / f"{shards[0].sha256}.partial").write_bytes(bytes(shards[0].bytes))
    cache = ShardCache(tmp_path / "cache", shards[1].bytes)
    cache.fetch(uris.join(remote, shards[1].path), shards[1])
    assert [p.name for p in (tmp_path / "cache").iterdir() if not p.suffix] == [shards[1].sha256]


def test_a_partial_download_of_a_killed_worker_is_replaced(remote: str, tmp_path: Path) -> None:
    shard = manifests.read_current(remote).split("train").shards[0]
    uri = uris.join(remote, shard.path)
    (tmp_path / f"{shard.sha256}.partial").write_bytes(b"half")
    assert ShardCache(tmp_path, 1 << 30).fetch(uri, shard).read_bytes() == storage.read(uri)


@pytest.mark.parametrize("limit", [1 << 30, 1000], ids=["cached", "by ranges"])
def test_the_error_for_a_missing_shard_names_it(remote: str, tmp_path: Path, limit: int) -> None:
    reader = dataset(remote, ShardCache(tmp_path, limit))
    missing = uris.join(remote, manifests.read_current(remote).split("train").shards[0].path)
    storage.remove(missing)
    with pytest.raises(TrainyardError, match=f"{missing} does not exist, but the manifest names it"):
        epoch(reader)


@pytest.mark.slow
@pytest.mark.parametrize("rows_per_batch", [1, 7, 50])
def test_range_reads_fetch_a_block_once_for_each_stripe_and_drop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows_per_batch: int
) -> None:
    rows = 6400
    local = datasets.write(tmp_path / "local", {"train": {"number": np.arange(rows)}}, rows_per_batch, shards=2)
    remote = f"memory://{tmp_path}"
    fsspec.filesystem("memory").put(str(storage.local_path(local)), str(tmp_path), recursive=True)
    reads = record_reads(monkeypatch)
    reader = SplitReader(remote, manifests.read_current(remote), "train", ("number",), cache=ShardCache(tmp_path, 0))
    order = Order(reader.blocks, batch=64, seed=0, window=2)
    held = []
    numbers: list[int] = []
    for batch in Loader(reader, order).epoch(0):
        numbers += batch.columns["number"].tolist()
        held.append(reader.fetched_bytes)
    assert sorted(numbers) == list(range(rows))
    of_schemas = 2 * 2  # of each shard, perhaps by two threads at once
    assert len(reads) <= len(reader.blocks) + 64 + of_schemas, "each block, again at the end of a stripe"
    assert reader.fetched_bytes == 0
    largest = max(length for shard in reader._shards for length in shard.lengths)
    assert max(held) <= 64 * 2 * 8 * largest, "the blocks of a few windows of 64 stripes"


def test_blocks_ahead_are_limited_by_their_bytes(remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "FETCHED_BYTES", 0)
    reader = SplitReader(
        remote, manifests.read_current(remote), "train", ("number",), cache=ShardCache(tmp_path / "c", 0)
    )
    held = []
    release = reader.release
    monkeypatch.setattr(reader, "release", lambda blocks: (held.append(len(reader._reads)), release(blocks)))
    order = Order(reader.blocks, batch=8, seed=0, window=2)
    numbers = [number for batch in Loader(reader, order).epoch(0) for number in batch.columns["number"].tolist()]
    assert sorted(numbers) == list(range(ROWS))
    assert max(held) <= 2 * 16, "the blocks of two windows of 16 rows"


def test_on_yarn_the_cache_is_in_the_folder_of_the_application() -> None:
    folders = "/d1/appcache/a1,/d2/appcache/a1"
    assert name_folder(FOLDER, {"LOCAL_DIRS": folders}) == Path("/d1/appcache/a1/trainyard-shards")


def test_a_split_is_read_block_by_block_when_others_use_the_whole_cache(
    remote: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manifest = manifests.read_current(remote)
    shards = manifest.split("train").shards
    limit = sum(shard.bytes for shard in shards)
    cache = ShardCache(tmp_path / "cache", limit)
    others = [(uris.join(remote, shard.path), shard) for shard in shards[:2]]
    held: list[Any] = [cache.map(*other) for other in others]
    for number, (_, shard) in enumerate(others):  # a shard of another dataset
        file = tmp_path / "cache" / f"{number:064x}"
        file.write_bytes(bytes(shard.bytes))
        held.append(file.open("rb"))
        fcntl.flock(held[-1], fcntl.LOCK_SH)
    reader = SplitReader(
        remote, manifest, "train", ("number", "list", "file"), cache=ShardCache(tmp_path / "cache", limit)
    )
    assert sorted(number for numbers in epoch(reader) for number in numbers) == list(range(ROWS))
    assert "split 'train' is read block by block" in capfd.readouterr().out


@pytest.mark.parametrize(("error", "failing"), [(errno.ENOSPC, "_allocate"), (errno.EDQUOT, "_append")])
def test_a_split_is_read_block_by_block_when_the_disk_is_full(
    remote: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: int,
    failing: str,
) -> None:
    """Before a download, or during one where the file system cannot reserve space."""

    def fail(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(caches, failing, fail)
    reader = dataset(remote, ShardCache(tmp_path / "cache", 1 << 30))
    assert sorted(number for numbers in epoch(reader) for number in numbers) == list(range(ROWS))
    assert f"split 'train' is read block by block: {os.strerror(error)} in {tmp_path}/cache" in capfd.readouterr().out
    assert [path for path in (tmp_path / "cache").iterdir() if path.suffix != ".lock"] == []


def test_the_space_of_a_shard_is_reserved_before_it_is_downloaded(remote: str, tmp_path: Path) -> None:
    shard = manifests.read_current(remote).split("train").shards[0]
    cache, partial = ShardCache(tmp_path, 1 << 30), tmp_path / f"{shard.sha256}.partial"
    assert cache._reserve(shard, partial)
    assert partial.stat().st_size == shard.bytes <= 512 * partial.stat().st_blocks


def test_a_truncated_remote_shard_is_refused_at_once_where_it_is_read_by_ranges(remote: str, tmp_path: Path) -> None:
    manifest = manifests.read_current(remote)
    shard = manifest.split("train").shards[-1]
    data = storage.read(uris.join(remote, shard.path))
    storage.replace(uris.join(remote, shard.path), data[: shard.begin + 10])
    reader = SplitReader(remote, manifest, "train", ("number",), cache=ShardCache(tmp_path / "cache", 0))
    with pytest.raises(TrainyardError, match="it was truncated or overwritten"):
        reader.block(len(reader.blocks) - 1)


def read_in_child(reader: SplitReader, results: Any) -> None:
    results.send(sorted(number for numbers in epoch(reader) for number in numbers))


@pytest.mark.parametrize("limit", [0, 1 << 30])
def test_a_forked_process_reads_with_threads_of_its_own(remote: str, tmp_path: Path, limit: int) -> None:
    reader = SplitReader(
        remote,
        manifests.read_current(remote),
        "train",
        ("number", "list", "file"),
        cache=ShardCache(tmp_path / "c", limit),
    )
    reader.prefetch(range(len(reader.blocks)))
    receiver, sender = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=read_in_child, args=(reader, sender))
    process.start()
    try:
        assert receiver.poll(120), "the child waits for threads that only its parent has"
        assert receiver.recv() == list(range(ROWS))
    finally:
        process.kill()
        process.join()


def test_a_process_that_is_forked_during_a_download_does_not_keep_its_lock(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, read, is_forked = os.getpid(), storage.read_range, threading.Event()

    def wait_in_parent(uri: str, begin: int, length: int) -> bytes:
        assert os.getpid() != parent or is_forked.wait(60)
        return read(uri, begin, length)

    monkeypatch.setattr(storage, "read_range", wait_in_parent)
    reader = dataset(remote, ShardCache(tmp_path / "cache", 1 << 30))
    reader.prefetch(range(len(reader.blocks)))
    while not list((tmp_path / "cache").glob("*.partial")):
        time.sleep(0.01)
    receiver, sender = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=read_in_child, args=(reader, sender))
    process.start()
    is_forked.set()
    try:
        assert receiver.poll(60), "the child waits for a lock that it holds itself"
    finally:
        process.kill()
        process.join()


def test_a_shard_that_is_dropped_takes_its_file_descriptor_along(
    remote: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_reader, "OPEN_SHARDS", 1)
    reader = SplitReader(
        remote, manifests.read_current(remote), "train", ("number",), cache=ShardCache(tmp_path / "c", 1 << 30)
    )
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(len(reader.blocks)):
        reader.block(number)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before + 1
