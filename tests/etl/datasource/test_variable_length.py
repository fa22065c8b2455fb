"""Rows that differ in length, and images that stay files, from Spark through training and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sklearn import metrics as truth

from tests.trainer import datasets
from tests.trainer.data.test_decoding import digits
from trainyard.etl.evaluation.evaluate import evaluate
from trainyard.etl.jobs import predict
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.trained_model import load_model

pytestmark = pytest.mark.spark


def scored(spark: Any, frame: Any, directory: Path, rows: datasets.Columns, recipe: str, **options: Any) -> None:
    """Export the rows, train on them, and compare what Spark makes of them with the model in one process."""
    batches, model = str(directory / "dataset"), str(directory / "model")
    frame.write.format("trainyard").mode("append").options(**options).save(batches)
    fit(f"tests.trainer.recipes:{recipe}", dataset=batches, model=model, epochs=2, batch_size=10)
    guess = load_model(model).predict(rows)["class_"]
    back = spark.read.format("trainyard").load(batches)
    found = evaluate(back, [model], ["accuracy"], examples=1)
    assert found.model.metrics["accuracy"] == pytest.approx(truth.accuracy_score(rows["label"], guess))
    predicted = predict.predict(back, model, ["key"], rows_per_batch=17).collect()
    assert {row.key: row.class_ for row in predicted} == dict(enumerate(guess.tolist()))


def test_rows_that_differ_in_length_are_scored_as_in_one_process(spark: Any, tmp_path: Path) -> None:
    rows = datasets.sequences(120)
    data = [
        (key, tokens.tolist(), frames.ravel().tolist(), int(label))
        for key, (tokens, frames, label) in enumerate(zip(rows["tokens"], rows["frames"], rows["label"], strict=True))
    ]
    frame = spark.createDataFrame(data, "key int, tokens array<int>, frames array<float>, label bigint")
    scored(spark, frame, tmp_path, rows, "pooled", variable_length="tokens,frames", shapes='{"frames": [4]}')


def test_images_that_are_files_are_scored_as_in_one_process(spark: Any, tmp_path: Path) -> None:
    rows = digits(slice(120))
    data = [(key, rows["image"][key], int(rows["label"][key])) for key in range(120)]
    scored(spark, spark.createDataFrame(data, "key int, image binary, label bigint"), tmp_path, rows, "files")
