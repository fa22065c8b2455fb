"""Shards on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from trainyard.etl.datasource.columns import Field
from trainyard.etl.datasource.shards import ShardWriter


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
