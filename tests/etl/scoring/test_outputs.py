"""Predictions and features are Arrow batches of a limited size, whatever the size of the batches that are read."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.etl.models import train
from tests.trainer import datasets
from trainyard.etl.scoring import outputs
from trainyard.trainer.model.artifacts.trained_model import load_model

ROWS, MAX_ROWS = 50, 7
LAYER, ELEMENTS, CLASSES = "0", 16, 3
NUMBERS = pa.list_(pa.field("element", pa.float32(), nullable=False))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("model"), "of_last_layer")


@pytest.mark.parametrize(
    ("add_columns", "compute"),
    [
        (partial(outputs.predict_batches, keys=["key"], rows_per_batch=None), lambda model, rows: model.output(rows)),
        (
            partial(outputs.featurize_batches, layer=LAYER, kept=["key"]),
            lambda model, rows: model.features(LAYER, rows),
        ),
    ],
)
def test_a_batch_of_results_has_a_limited_number_of_rows(model: str, add_columns: Any, compute: Any) -> None:
    rows, loaded = datasets.blobs(ROWS), load_model(model)
    features = pa.array(list(rows["x"]), pa.list_(pa.float32()))
    batch = pa.RecordBatch.from_arrays([pa.array(range(ROWS)), features], names=["key", "x"])
    schema = pa.schema({"key": pa.int64(), "prediction": NUMBERS})
    document = loaded.artifact.to_json()
    results = list(add_columns([batch], uri=model, document=document, schema=schema, max_rows=MAX_ROWS))
    assert len(results) == math.ceil(ROWS / MAX_ROWS)
    table = pa.Table.from_batches(results)
    assert table["key"].to_pylist() == list(range(ROWS))
    expected = compute(loaded, rows).detach().cpu().numpy()
    np.testing.assert_allclose(table["prediction"].to_pylist(), expected, rtol=1e-5, atol=1e-5)


def test_the_bytes_of_a_row_of_results_are_those_of_all_columns(model: str) -> None:
    document = load_model(model).artifact.to_json()
    assert outputs.describe_predictions(model, document)[1] == 4 * CLASSES
    assert outputs.measure_layer(model, document, LAYER) == 4 * ELEMENTS
