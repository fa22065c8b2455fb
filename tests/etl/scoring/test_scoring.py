"""The rows that a model accepts, and the number of rows it is applied to at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from tests.etl.models import train
from trainyard.errors import TrainyardError
from trainyard.etl.scoring import arrays, inputs
from trainyard.etl.scoring.batch_size import BatchSizeTuner
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.data.reading.jagged import Jagged
from trainyard.trainer.model.artifacts.trained_model import load_model


def find_size(rate: dict[int, float]) -> int:
    """Return the size that a tuner chooses when `rate` is rows/s by size."""
    tuner = BatchSizeTuner()
    for _ in range(100):
        tuner.record(tuner.rows, tuner.rows / rate.get(tuner.rows, rate[max(rate)]))
    return tuner.rows


def test_the_size_doubles_until_that_is_not_faster() -> None:
    assert find_size({64: 100.0, 128: 190, 256: 300, 512: 310, 1024: 300}) == 256
    assert find_size({64: 100.0, 128: 99}) == 64
    assert find_size({64: 100.0, 128: 99, 256: 150, 512: 100}) == 256, "one slower size does not end the search"


def test_a_fixed_size_does_not_change() -> None:
    tuner = BatchSizeTuner(17)
    for _ in range(10):
        tuner.record(17, 1.0)
    assert tuner.rows == 17


@given(st.integers(1, 500), st.integers(1, 40))
def test_all_rows_are_processed_once_and_in_order(rows: int, size: int) -> None:
    outputs = BatchSizeTuner(size).apply(lambda part: {"y": part["x"] * 2}, {"x": np.arange(rows)})
    assert outputs["y"].tolist() == (np.arange(rows) * 2).tolist()


def test_the_size_is_halved_when_memory_is_exhausted() -> None:
    def apply(part: Any) -> Any:
        if len(part["x"]) > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return part

    tuner = BatchSizeTuner(64)
    assert tuner.apply(apply, {"x": np.arange(100)})["x"].tolist() == list(range(100))
    assert tuner.rows == 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelArtifact:
    return load_model(train(tmp_path_factory.mktemp("model"), "linear")).artifact


def make_schema(name: str, kind: DataType) -> StructType:
    return StructType([StructField(name, kind)])


FLOATS, DOUBLES, INTEGERS = (ArrayType(kind()) for kind in (FloatType, DoubleType, IntegerType))


@pytest.mark.parametrize("kind", [FLOATS, DOUBLES, INTEGERS, ArrayType(FLOATS)])
def test_numbers_of_another_type_are_accepted(model: ModelArtifact, kind: DataType) -> None:
    inputs.check_inputs(make_schema("x", kind), model, "these rows")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("y", IntegerType(), r"these rows have no column 'x'\. Their columns are y: prepare them as for the export"),
        ("x", FloatType(), r"these rows have float in column 'x', but the model was trained on float of shape \[8\]"),
        ("x", ArrayType(StringType()), r"these rows have array<string> in column 'x'"),
    ],
)
def test_a_missing_or_different_column_is_named(model: ModelArtifact, name: str, kind: DataType, message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        inputs.check_inputs(make_schema(name, kind), model, "these rows")


def read(rows: list[Any], kind: pa.DataType, column: Column) -> Any:
    """Return rows as the model gets them."""
    batch = pa.record_batch({column.name: pa.array([None, *rows, None], kind)}).slice(1, len(rows))
    return arrays.to_array(batch, column)


def make_column(kind: Any, type_: str, *shape: int) -> Column:
    return Column(name="x", kind=kind, type=type_, shape=shape)


LISTS, NESTED = pa.list_(pa.float32()), pa.list_(pa.list_(pa.float32()))


@pytest.mark.parametrize(
    ("rows", "kind", "shape"),
    [([[1, 2, 3, 4], [5, 6, 7, 8]], LISTS, (2, 2)), ([[[1, 2], [3, 4]], [[5, 6], [7, 8]]], NESTED, (2, 2)),
     ([[[1, 2], [3, 4]]], NESTED, (4,)), ([[1, 2]], pa.large_list(pa.float32()), (2,)), ([1, 2], pa.int64(), ())],
)  # fmt: skip
def test_rows_of_the_models_shape_are_arrays(rows: Any, kind: pa.DataType, shape: tuple[int, ...]) -> None:
    expected = np.array(rows, np.float32).reshape(-1, *shape)
    read_rows = read(rows, kind, make_column("tensor" if shape else "scalar", "float", *shape))
    assert read_rows.dtype == np.float32 and (read_rows == expected).all()


@pytest.mark.parametrize(
    ("rows", "kind", "message"),
    [
        ([[1] * 4, [1] * 3, [1] * 5], LISTS, r"column 'x' has 3 elements in row 1 of a batch; .* shape \[2, 2\], 4 el"),
        ([[[1, 1, 1], [1]]], NESTED, r"column 'x' has an array of 3 elements where .* shape \[2, 2\], has 2"),
        ([[[1], [1], [1], [1]]], NESTED, r"column 'x' has an array of 4 elements where .* shape \[2, 2\], has 2"),
        ([[1, 1, None, 1]], LISTS, "column 'x' has nulls"),
        ([[1] * 4, None], LISTS, "column 'x' has nulls"),
        ([[[1, 1], None]], NESTED, "column 'x' has nulls"),
    ],
)
def test_each_row_must_have_the_models_shape(rows: Any, kind: pa.DataType, message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        read(rows, kind, make_column("tensor", "float", 2, 2))


def test_a_variable_length_row_has_whole_elements() -> None:
    frames = make_column("list", "float", 2)
    rows = read([[1, 2, 3, 4], [], [5, 6]], LISTS, frames)
    assert [rows.values[start : start + n].tolist() for start, n in zip(rows.starts, rows.lengths, strict=True)] == [
        [[1, 2], [3, 4]],
        [],
        [[5, 6]],
    ]
    with pytest.raises(TrainyardError, match=r"column 'x' has 3 values in row 1 of a batch; .* shape \[2\], 2 values"):
        read([[1, 2], [3, 4, 5]], LISTS, frames)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()])
def test_binary_rows_are_bytes(kind: pa.DataType) -> None:
    column = make_column("tensor", "uint8", 2)
    rows = read([b"ab", None, b"c"], kind, column)
    assert isinstance(rows, Jagged) and rows.lengths.tolist() == [2, 0, 1]
    batch = pa.RecordBatch.from_arrays([pa.array([b"no", b"ab", b"c", b"no"], kind)], [column.name])
    rows = arrays.to_array(batch.slice(1, 2), column)
    assert isinstance(rows, Jagged) and rows.pack().tobytes() == b"abc"


@pytest.mark.parametrize(
    ("rows", "kind", "type_"),
    [([-128, 127], pa.int64(), "int8"), ([0, 1], pa.int32(), "bool"), ([2.0, -3.0], pa.float64(), "int64"),
     ([True, False], pa.bool_(), "float"), ([0.1, float("inf"), float("nan")], pa.float64(), "float"),
     ([2**24 + 1], pa.int64(), "float")],
)  # fmt: skip
def test_values_that_fit_are_converted_to_the_models_type(rows: list[Any], kind: pa.DataType, type_: str) -> None:
    read_rows = read(rows, kind, make_column("scalar", type_))
    assert read_rows.astype(float) == pytest.approx(np.array(rows, float), rel=1e-7, nan_ok=True)


@pytest.mark.parametrize(
    ("rows", "kind", "type_", "value"),
    [([100, 200], pa.int64(), "int8", "200"), ([1, 2], pa.int32(), "bool", "2"), ([-1], pa.int64(), "uint8", "-1"),
     ([1.0, 0.75], pa.float64(), "int64", "0.75"), ([float("nan")], pa.float32(), "int32", "nan"),
     ([1e19], pa.float64(), "int64", r"1e\+19"), ([1e300], pa.float64(), "float", r"1e\+300")],
)  # fmt: skip
def test_a_value_that_the_models_type_cannot_represent_is_named(
    rows: list[Any], kind: pa.DataType, type_: str, value: str
) -> None:
    with pytest.raises(TrainyardError, match=f"column 'x' has the value {value}, which .* cannot represent"):
        read(rows, kind, make_column("scalar", type_))


def test_nested_arrays_are_no_variable_length_rows(model: ModelArtifact) -> None:
    artifact = model.model_copy(update={"inputs": (make_column("list", "float", 2),)})
    inputs.check_inputs(make_schema("x", FLOATS), artifact, "these rows")
    with pytest.raises(
        TrainyardError, match=r"have array<array<float>> in column 'x', .* variable-length rows of float"
    ):
        inputs.check_inputs(make_schema("x", ArrayType(FLOATS)), artifact, "these rows")


def test_a_label_may_have_numbers_of_any_type(model: ModelArtifact) -> None:
    label = Column(name="y", kind="scalar", type="int64")

    def check(kind: DataType) -> None:
        schema = StructType([StructField("x", FLOATS), StructField("y", kind)])
        inputs.check_inputs(schema, model, "these rows", label=label)

    check(DoubleType())
    for kind in (StringType(), BinaryType(), FLOATS):
        with pytest.raises(TrainyardError, match=r"have .* in column 'y', but the model was trained on int64"):
            check(kind)
