"""Statistics that are too large for a message travel in a file, and the driver holds those of one task at a time."""

from __future__ import annotations

import dataclasses
import pickle
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import Field
from trainyard.etl.datasource.options import WriteOptions
from trainyard.etl.datasource.writing import writer
from trainyard.etl.datasource.writing.statistics import ColumnStatistics
from trainyard.etl.datasource.writing.task_statistics import SplitStatistics, load, save_if_large
from trainyard.etl.datasource.writing.task_writer import TaskOutput, TaskWriter

ENTRIES = 4096
FIELDS = (
    Field("x", "tensor", pa.float32(), (ENTRIES,)),
    Field("label", "scalar", pa.int64(), ()),
    Field("name", "scalar", pa.string(), ()),
    Field("day", "scalar", pa.date32(), ()),
    Field("at", "scalar", pa.timestamp("us", tz="UTC"), ()),
    Field("local", "scalar", pa.timestamp("us"), ()),
    Field("image", "scalar", pa.binary(), ()),
)


def make_scalars(rows: int) -> dict[str, pa.Array]:
    """Return a column for each type of scalars, with a null and a few distinct values."""
    days = [date(1900, 2, 28) + timedelta(days=row % 4) for row in range(rows)]
    times = [
        datetime(2026, 10, 25, 0, 30, tzinfo=UTC) + timedelta(hours=row % 3, microseconds=1) for row in range(rows)
    ]
    values = {
        "label": [row % 5 for row in range(rows)],
        "name": [None, *(f"n{row % 3}" for row in range(1, rows))],
        "day": [None, *days[1:]],
        "at": [None, *times[1:]],
        "local": [None, *(time.replace(tzinfo=None) for time in times[1:])],
        "image": [b"\xff"] * rows,
    }
    return {field.name: pa.array(values[field.name], field.element) for field in FIELDS[1:]}


def write_task(dataset: Path, partition: int) -> TaskOutput:
    """Write 20 rows of wide tensors as one task."""
    task = TaskWriter(WriteOptions.parse({"path": str(dataset)}), "shards/1", FIELDS, partition, partition)
    values = np.random.default_rng(partition).normal(5, 2, (20, ENTRIES)).astype(np.float32)
    task.add(pa.record_batch({"x": pa.array(list(values), pa.list_(pa.float32()))} | make_scalars(20)))
    return task.finish()


def test_statistics_are_the_same_from_a_file(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(10, ENTRIES)).astype(np.float32)
    rows = {"x": pa.FixedShapeTensorArray.from_numpy_ndarray(values).storage} | make_scalars(10)
    columns = {field.name: ColumnStatistics() for field in FIELDS}
    for field in FIELDS:
        columns[field.name].add(field, rows[field.name])
    columns["flag"] = ColumnStatistics(None, 10, 0, {True: 4, False: 6})
    columns["nulls"] = ColumnStatistics(None, 10, 10, {})
    statistics: SplitStatistics = {"train": columns, "test": columns}
    uri = str(tmp_path / "statistics.arrow")
    sha256 = save_if_large(uri, statistics)
    for split in load(uri, sha256).values():
        assert list(split) == list(columns)
        for name, column in columns.items():
            loaded = split[name]
            assert (loaded.rows, loaded.nulls, loaded.values) == (column.rows, column.nulls, column.values)
            assert list(map(repr, loaded.values or ())) == list(map(repr, column.values or ()))
            assert (loaded.moments is None) == (column.moments is None)
            if column.moments and loaded.moments:
                for part in dataclasses.fields(column.moments):
                    assert np.array_equal(getattr(loaded.moments, part.name), getattr(column.moments, part.name))
    assert not save_if_large(uri, {"train": {"label": columns["label"]}}), "small ones stay in the message"


def test_a_file_that_somebody_else_has_written_is_refused(tmp_path: Path) -> None:
    output, other = (write_task(tmp_path, partition) for partition in range(2))
    (tmp_path / output.statistics_path).write_bytes((tmp_path / other.statistics_path).read_bytes())
    with pytest.raises(TrainyardError, match=rf"{output.statistics_path} is not what the task wrote"):
        writer._merge_statistics(str(tmp_path), [other, output])


@pytest.mark.parametrize("tasks", [4, 40])
def test_the_driver_holds_the_statistics_of_one_task_at_a_time(tmp_path: Path, tasks: int) -> None:
    outputs = [write_task(tmp_path, partition) for partition in range(tasks)]
    assert max(len(pickle.dumps(output)) for output in outputs) < 8 << 10
    writer._merge_statistics(str(tmp_path), outputs[:1])
    tracemalloc.start()
    total = writer._merge_statistics(str(tmp_path), outputs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total["train"]["x"].rows == 20 * tasks
    assert peak < 2 << 20
