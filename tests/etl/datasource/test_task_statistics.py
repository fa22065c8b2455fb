"""Statistics that are too large for a message travel in a file, and the driver holds those of one task at a time."""

from __future__ import annotations

import dataclasses
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from trainyard.etl.datasource import writer
from trainyard.etl.datasource.columns import Field
from trainyard.etl.datasource.options import WriteOptions
from trainyard.etl.datasource.statistics import ColumnStatistics
from trainyard.etl.datasource.task_statistics import SplitStatistics, load, save_if_large
from trainyard.etl.datasource.task_writer import TaskOutput, TaskWriter

ENTRIES = 4096
FIELDS = (
    Field("x", "tensor", pa.float32(), (ENTRIES,)),
    Field("label", "scalar", pa.int64(), ()),
    Field("name", "scalar", pa.string(), ()),
)


def write_task(dataset: Path, partition: int) -> TaskOutput:
    """Write 20 rows of wide tensors as one task."""
    rng = np.random.default_rng(partition)
    fields = (Field("x", "tensor", pa.float32(), (ENTRIES,)), *FIELDS[1:])
    task = TaskWriter(WriteOptions.parse({"path": str(dataset)}), "shards/1", fields, partition, partition)
    values = rng.normal(5, 2, (20, ENTRIES)).astype(np.float32)
    task.add(
        pa.record_batch(
            {
                "x": pa.array(list(values), pa.list_(pa.float32())),
                "label": pa.array(rng.integers(0, 5, 20)),
                "name": pa.array([f"n{number % 3}" for number in range(20)]),
            }
        )
    )
    return task.finish()


def test_statistics_are_the_same_from_a_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    statistics: SplitStatistics = {"train": {column.name: ColumnStatistics() for column in FIELDS}, "test": {}}
    tensor = pa.FixedShapeTensorArray.from_numpy_ndarray(rng.normal(size=(10, ENTRIES)).astype(np.float32)).storage
    for column, array in zip(FIELDS, [tensor, pa.array([True] * 10), pa.array(["a", "b"] * 5)], strict=True):
        statistics["train"][column.name].add(column, array)
    uri = str(tmp_path / "statistics.npz")
    assert save_if_large(uri, statistics)
    loaded = load(uri)["train"]
    for name, column in statistics["train"].items():
        for field in ("rows", "nulls", "values"):
            assert getattr(loaded[name], field) == getattr(column, field)
        assert (loaded[name].moments is None) == (column.moments is None)
        if column.moments and loaded[name].moments:
            for field in dataclasses.fields(column.moments):
                assert np.array_equal(getattr(loaded[name].moments, field.name), getattr(column.moments, field.name))
    assert not save_if_large(uri, {"train": {"label": statistics["train"]["label"]}}), "small ones stay in the message"


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
