"""What rows a model takes, and how many at a time."""

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

from tests.etl.models import trained
from trainyard.errors import TrainyardError
from trainyard.etl.scoring import inputs
from trainyard.etl.scoring.batch_size import Pace
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.model.trained_model import load_model


def settled(speed: dict[int, float]) -> int:
    """The rows at a time that a pace comes to, where `speed` says rows/s by rows at a time."""
    pace = Pace()
    for _ in range(100):
        pace.took(pace.rows, pace.rows / speed.get(pace.rows, speed[max(speed)]))
    return pace.rows


def test_more_rows_at_a_time_for_as_long_as_that_is_faster() -> None:
    assert settled({64: 100.0, 128: 190, 256: 300, 512: 310, 1024: 300}) == 256
    assert settled({64: 100.0, 128: 99}) == 64
    assert settled({64: 100.0, 128: 99, 256: 150, 512: 100}) == 256, "one size that is slower says little"


def test_a_number_that_was_given_stays() -> None:
    pace = Pace(17)
    for _ in range(10):
        pace.took(17, 1.0)
    assert pace.rows == 17


@given(st.integers(1, 500), st.integers(1, 40))
def test_all_rows_are_applied_once_in_their_order(rows: int, at_once: int) -> None:
    found = Pace(at_once).over(lambda part: {"y": part["x"] * 2}, {"x": np.arange(rows)})
    assert found["y"].tolist() == (np.arange(rows) * 2).tolist()


def test_fewer_rows_at_a_time_where_memory_is_short() -> None:
    def apply(part: Any) -> Any:
        if len(part["x"]) > 10:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return part

    pace = Pace(64)
    assert pace.over(apply, {"x": np.arange(100)})["x"].tolist() == list(range(100))
    assert pace.rows == 8


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelArtifact:
    return load_model(trained(tmp_path_factory.mktemp("model"), "linear")).artifact


def rows_of(name: str, kind: DataType) -> StructType:
    return StructType([StructField(name, kind)])


FLOATS, DOUBLES, WHOLE = (ArrayType(kind()) for kind in (FloatType, DoubleType, IntegerType))


@pytest.mark.parametrize("kind", [FLOATS, DOUBLES, WHOLE, ArrayType(FLOATS)])
def test_numbers_are_taken_as_what_the_model_was_trained_on(model: ModelArtifact, kind: DataType) -> None:
    inputs.check_inputs(rows_of("x", kind), model, "this")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("y", IntegerType(), r"this has no column 'x'\. It has y: shape it as for the export"),
        ("x", FloatType(), r"this has float in column 'x', and the model was trained on float of shape \[8\]"),
        ("x", ArrayType(StringType()), r"this has array<string> in column 'x'"),
    ],
)
def test_a_column_that_differs_is_named(model: ModelArtifact, name: str, kind: DataType, message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        inputs.check_inputs(rows_of(name, kind), model, "this")
