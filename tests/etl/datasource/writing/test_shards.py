"""Shards on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from trainyard.etl.datasource.columns import Field
from trainyard.etl.datasource.writing.shards import MAX_BATCH_BYTES, ShardWriter, SplitWriter


def test_a_local_shard_is_on_the_disk_before_a_manifest_can_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synchronized: dict[Path, int] = {}
    sync = os.fsync

    def record(descriptor: int) -> None:
        synchronized[Path(f"/proc/self/fd/{descriptor}").readlink()] = os.fstat(descriptor).st_size
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    shard = ShardWriter(str(tmp_path), "shards/1/a.arrow", (Field("x", "scalar", pa.int64(), ()),))
    shard.write(pa.record_batch({"x": pa.array(range(1000))}))
    entry = shard.close()
    file = tmp_path / entry.path
    assert synchronized[file] == entry.bytes == file.stat().st_size, "all bytes of it"
    assert {file.parent, file.parent.parent, tmp_path} <= set(synchronized), "and the names that lead to it"


@pytest.mark.parametrize(
    ("width", "rows_per_batch", "expected"), [(16, 100, 100), (150_528, 100, 27), (8 << 20, 100, 1)]
)
def test_a_record_batch_of_wide_rows_has_fewer_so_that_readers_hold_few_bytes(
    tmp_path: Path, width: int, rows_per_batch: int, expected: int
) -> None:
    fields = (Field("x", "tensor", pa.uint8(), (width,)),)
    writer = SplitWriter(str(tmp_path), lambda number: f"{number}.arrow", fields, rows_per_batch)
    rows = min(2 * expected + 1, 201)
    values = pa.array(np.zeros(rows * width, np.uint8))
    writer.add(pa.record_batch({"x": pa.FixedSizeListArray.from_arrays(values, width)}))
    (shard,) = writer.close()
    assert [batch.rows for batch in shard.batches] == [expected, expected, 1]
    assert max(shard.lengths) <= MAX_BATCH_BYTES + 4096 or expected == 1
