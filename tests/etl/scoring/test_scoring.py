"""The rows that a model accepts, and the number of rows it is applied to at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
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
from trainyard.etl.scoring import inputs
from trainyard.etl.scoring.batch_size import BatchSizeTuner
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.model.trained_model import load_model


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
