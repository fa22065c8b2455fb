"""Variable-length rows and encoded images, exported by Spark, trained on, and scored by Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sklearn import metrics as truth

from tests.trainer import datasets
from tests.trainer.data.reading.test_decoding import digits
from trainyard.etl.evaluation.evaluate import evaluate
from trainyard.etl.jobs import predict
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model

pytestmark = pytest.mark.spark


def check_scores(spark: Any, frame: Any, directory: Path, rows: datasets.Columns, recipe: str, **options: Any) -> None:
    """Export rows, train on them, and check that Spark scores them as the model does in one process."""
    dataset, model = str(directory / "dataset"), str(directory / "model")
    frame.write.format("trainyard").mode("append").options(**options).save(dataset)
    fit(f"tests.trainer.recipes:{recipe}", dataset=dataset, model=model, epochs=2, batch_size=10)
    expected = load_model(model).predict(rows)["class_"]
    exported = spark.read.format("trainyard").load(dataset)
    result = evaluate(exported, [model], ["accuracy"], examples=1)
    assert result.model.metrics["accuracy"] == pytest.approx(truth.accuracy_score(rows["label"], expected))
    predicted = predict.predict(exported, model, ["key"], rows_per_batch=17).collect()
    assert {row.key: row.class_ for row in predicted} == dict(enumerate(expected.tolist()))


def test_variable_length_rows_are_scored_as_in_one_process(spark: Any, tmp_path: Path) -> None:
    rows = datasets.sequences(120)
    data = [
        (key, tokens.tolist(), frames.ravel().tolist(), int(label))
        for key, (tokens, frames, label) in enumerate(zip(rows["tokens"], rows["frames"], rows["label"], strict=True))
    ]
    frame = spark.createDataFrame(data, "key int, tokens array<int>, frames array<float>, label bigint")
    check_scores(spark, frame, tmp_path, rows, "pooled", variableLength="tokens,frames", shapes='{"frames": [4]}')


def test_encoded_images_are_scored_as_in_one_process(spark: Any, tmp_path: Path) -> None:
    rows = digits(slice(120))
    data = [(key, rows["image"][key], int(rows["label"][key])) for key in range(120)]
    check_scores(spark, spark.createDataFrame(data, "key int, image binary, label bigint"), tmp_path, rows, "files")
