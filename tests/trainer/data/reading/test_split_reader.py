"""Reading shards: the values of the arrays, and the errors."""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import Column, RecordBatch
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.data.order import Order
from trainyard.trainer.data.prefetching import prefetch
from trainyard.trainer.data.reading.blocks import _to_rows
from trainyard.trainer.data.reading.split_reader import SplitReader

MEBIBYTE = 1 << 20


def open_reader(directory: Path, columns: datasets.Columns, *names: str) -> SplitReader:
    uri = datasets.write(directory, {"train": columns}, rows_per_batch=16)
    return SplitReader(uri, manifests.read_current(uri), "train", names)


def columns(rows: int = 100) -> datasets.Columns:
    rng = np.random.default_rng(0)
    return {
        "image": rng.integers(0, 255, (rows, 3, 4, 4), dtype=np.uint8),
        "number": np.arange(rows, dtype=np.int64),
        "flag": rng.random(rows) > 0.5,
    }


def test_blocks_hold_the_rows_that_were_written(tmp_path: Path) -> None:
    written = columns()
    dataset = open_reader(tmp_path, written, "image", "number", "flag")
    blocks = [dataset.block(i) for i in range(len(dataset.blocks))]
    for name, values in written.items():
        assert np.array_equal(np.concatenate([block[name] for block in blocks]), values)


def test_arrays_are_views_of_the_memory_map(tmp_path: Path) -> None:
    image = open_reader(tmp_path, columns(), "image").block(0)["image"]
    assert not image.flags.owndata and not image.flags.writeable


def open_evicted(tmp_path: Path) -> tuple[SplitReader, Path, RecordBatch]:
    """Return a dataset that is not in memory, its file, and block 8, beyond what the system reads ahead."""
    rows = np.zeros((16 * MEBIBYTE, 4), np.uint8)
    uri = datasets.write(tmp_path, {"train": {"x": rows}}, rows_per_batch=MEBIBYTE, shards=1)
    manifest = manifests.read_current(uri)
    [shard] = manifest.split("train").shards
    evict(tmp_path / shard.path)
    dataset = SplitReader(uri, manifest, "train", ("x",))
    dataset.block(0)
    return dataset, tmp_path / shard.path, shard.batches[8]


def wait_for_memory(file: Path, block: RecordBatch) -> None:
    end = time.monotonic() + 60
    while not all(find_pages_in_memory(file, block.offset, block.length)):
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
def test_a_block_is_read_into_memory_before_it_is_needed(tmp_path: Path) -> None:
    dataset, file, block = open_evicted(tmp_path)
    dataset.prefetch([8])
    wait_for_memory(file, block)


@pytest.mark.slow
def test_a_block_is_read_into_memory_once_until_it_is_released(tmp_path: Path) -> None:
    """To ask the system again for pages that it has costs as much as to copy them."""
    dataset, _, block = open_evicted(tmp_path)
    [(path, opened)] = dataset._open.items()
    requests: list[int] = []
    counted = SimpleNamespace(madvise=lambda advice, begin, length: requests.append(begin + length))
    dataset._open[path] = opened._replace(map=counted)  # type: ignore[arg-type]
    for _ in range(3):
        dataset.prefetch([8])
    assert requests == [block.offset + block.length]
    dataset.release([8])
    dataset.prefetch([8])
    assert len(requests) == 2


def evict(file: Path) -> None:
    """Drop a file from the page cache."""
    with file.open("rb") as content:
        os.fsync(content.fileno())
        os.posix_fadvise(content.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def find_pages_in_memory(file: Path, begin: int, length: int) -> list[bool]:
    """Return for each page of a part of a file whether it is in memory, by mincore(2)."""
    with file.open("rb") as content, mmap.mmap(content.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        first = begin - begin % mmap.PAGESIZE
        address = np.frombuffer(pages, np.uint8).ctypes.data + first
        size = begin + length - first
        found = (ctypes.c_ubyte * math.ceil(size / mmap.PAGESIZE))()
        assert ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), found) == 0
        return [bool(page & 1) for page in found]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_an_epoch_of_all_workers_has_every_row_once_in_global_batches(tmp_path: Path, world: int) -> None:
    dataset = open_reader(tmp_path, columns(), "image", "number")
    order = Order(dataset.blocks, batch=32, seed=0, window=2)
    seen: dict[int, list[int]] = {}
    for rank in range(world):
        for batch in Loader(dataset, order, rank, world).epoch(0):
            assert batch.total == order.size(batch.step)
            rows = batch.columns["number"].tolist()[: batch.rows]
            assert np.array_equal(batch.columns["image"][: batch.rows], columns()["image"][rows])
            seen.setdefault(batch.step, []).extend(rows)
    assert [len(seen[g]) for g in sorted(seen)] == [32, 32, 32, 4]
    assert sorted(row for rows in seen.values() for row in rows) == list(range(100))


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_that_are_kept_do_not_change(tmp_path: Path, shuffle: bool) -> None:
    dataset = open_reader(tmp_path, columns(2000), "image", "number")
    order = Order(dataset.blocks, batch=16, seed=0, window=1, shuffle=shuffle)
    kept = [batch.columns for batch in Loader(dataset, order).epoch(0)]
    read = [batch.columns["number"].clone() for batch in Loader(dataset, order).epoch(0)]
    for batch, numbers in zip(kept, read, strict=True):
        assert torch.equal(batch["number"], numbers)
        assert np.array_equal(batch["image"], columns(2000)["image"][numbers])


def test_a_worker_without_rows_of_a_batch_still_gets_a_local_batch(tmp_path: Path) -> None:
    dataset = open_reader(tmp_path, columns(33), "number")
    order = Order(dataset.blocks, batch=32, seed=0, window=1)
    last = [list(Loader(dataset, order, rank, 2).epoch(0))[-1] for rank in range(2)]
    assert sorted(batch.rows for batch in last) == [0, 1]
    assert all(len(batch.columns["number"]) == 1 for batch in last)


def test_a_transform_changes_whole_batches(tmp_path: Path) -> None:
    dataset = open_reader(tmp_path, columns(), "number")
    order = Order(dataset.blocks, batch=10, seed=0, window=5)
    loader = Loader(dataset, order, transform=lambda batch: {"number": -batch["number"]})
    assert all((batch.columns["number"] <= 0).all() for batch in loader.epoch(0))


def test_the_error_for_a_truncated_shard_names_it(tmp_path: Path) -> None:
    dataset = open_reader(tmp_path, columns(), "number")
    shard = tmp_path / "shards/test/train-0.arrow"
    size = shard.stat().st_size
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(TrainyardError, match=rf"train-0\.arrow has {size - 100} bytes, the manifest says {size}"):
        dataset.block(0)


@pytest.mark.parametrize("block", [0, 3])
def test_an_altered_byte_is_found_when_its_block_is_read(tmp_path: Path, block: int) -> None:
    dataset = open_reader(tmp_path, columns(), "number")
    shard = dataset._shards[0]
    file = tmp_path / "shards/test/train-0.arrow"
    data = bytearray(file.read_bytes())
    altered = shard.batches[block]
    data[altered.offset + altered.length - 1] ^= 1
    file.write_bytes(bytes(data))
    for number in set(range(len(shard.batches))) - {block}:
        dataset.block(number)
    span = f"bytes {altered.offset:,} to {altered.offset + altered.length:,}"
    with pytest.raises(TrainyardError, match=rf"train-0\.arrow was altered: the checksum of {span} differs"):
        dataset.block(block)


def test_an_altered_schema_is_refused(tmp_path: Path) -> None:
    dataset = open_reader(tmp_path, columns(), "number")
    file = tmp_path / "shards/test/train-0.arrow"
    file.write_bytes(file.read_bytes()[:-6] + b"broken")
    with pytest.raises(TrainyardError, match=r"train-0\.arrow is not what the manifest describes .* altered"):
        dataset.block(0)


@pytest.mark.parametrize("values", [[1, None, 3], [0.5, None], [True, None]])
def test_a_column_with_nulls_is_refused_by_name(values: list[Any]) -> None:
    array = pa.array(values)
    column = Column(name="age", kind="scalar", type=str(array.type))
    with pytest.raises(TrainyardError, match=r"column 'age' has nulls, .* fill them in prepare\.py"):
        _to_rows(array, column)


def test_the_first_block_needs_no_other_bytes_of_the_shard(tmp_path: Path) -> None:
    dataset = open_reader(tmp_path, columns(), "number")
    file = tmp_path / "shards/test/train-0.arrow"
    data = bytearray(file.read_bytes())
    second = dataset._shards[0].batches[1]
    data[second.offset : second.offset + second.length] = bytes(second.length)
    file.write_bytes(bytes(data))
    assert len(dataset.block(0)["number"]) == dataset.blocks[0]


def test_the_error_for_a_missing_shard_names_it(tmp_path: Path) -> None:
    dataset = open_reader(tmp_path, columns(), "number")
    (tmp_path / "shards/test/train-0.arrow").unlink()
    with pytest.raises(TrainyardError, match=r"train-0\.arrow does not exist"):
        dataset.block(0)


def test_the_error_for_a_missing_column_or_split_names_it(tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match="no column 'imag'; it has image, number, flag"):
        open_reader(tmp_path / "a", columns(), "imag")
    uri = datasets.write(tmp_path / "b", {"train": columns()})
    with pytest.raises(TrainyardError, match="no split 'test'; it has train"):
        SplitReader(uri, manifests.read_current(uri), "test", ("number",))


def test_an_error_in_the_thread_is_raised_in_order() -> None:
    def items():  # type: ignore[no-untyped-def]
        yield 1
        raise ValueError("broken")

    iteration = prefetch(items(), 2)
    assert next(iteration) == 1
    with pytest.raises(ValueError, match="broken"):
        next(iteration)
