"""Evaluation and predictions of a model with several heads: each over the rows that have its label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as reference

from tests.trainer import datasets, heads
from trainyard.errors import TrainyardError
from trainyard.etl.evaluation.evaluate import evaluate
from trainyard.etl.jobs.predict import predict
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model

NAMES = ["kind/accuracy", "kind/log_loss", "kind/confusion_matrix", "size/rmse", "size/r2"]
ROWS = heads.rows(120, 5, missing=True)
KIND, SIZE = np.ma.getmaskarray(ROWS["kind"]), np.ma.getmaskarray(ROWS["size"])


def train(folder: Path, epochs: int, recipe: str = "two", missing: bool = True) -> str:
    model = str(folder / "model")
    fit(
        f"tests.trainer.heads:{recipe}", dataset=heads.write(folder, missing=missing), model=model, epochs=epochs,
        batch_size=25,
    )  # fmt: skip
    return model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("model"), epochs=3)


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("worse"), epochs=1)


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    columns = [np.asarray(ROWS["x"]).tolist(), ROWS["kind"].tolist(), ROWS["size"].tolist()]  # type: ignore[union-attr]
    rows = [(number, number % 2, *row) for number, row in enumerate(zip(*columns, strict=True))]
    return spark.createDataFrame(rows, "key int, of int, x array<float>, kind int, size double").repartition(3)


def compute(model: str, rows: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the metrics of a model over some rows by scikit-learn."""
    output = load_model(model).output({"x": np.asarray(ROWS["x"])})
    kinds, sizes = rows & ~KIND, rows & ~SIZE
    kind, size = np.asarray(ROWS["kind"])[kinds], np.asarray(ROWS["size"])[sizes]
    probability = output["kind"].double().softmax(1).cpu().numpy()[kinds]
    predicted = output["size"].cpu().numpy()[sizes]
    return {
        "kind/accuracy": pytest.approx(reference.accuracy_score(kind, probability.argmax(1))),
        "kind/log_loss": pytest.approx(reference.log_loss(kind, probability, labels=[0, 1, 2]), rel=1e-5),
        "kind/confusion_matrix": reference.confusion_matrix(kind, probability.argmax(1), labels=[0, 1, 2]).tolist(),
        "size/rmse": pytest.approx(reference.root_mean_squared_error(size, predicted), rel=1e-4),
        "size/r2": pytest.approx(reference.r2_score(size, predicted), rel=1e-4),
    }


def test_metrics_of_each_head_are_those_of_the_rows_that_have_its_label(frame: Any, model: str, worse: str) -> None:
    result = evaluate(frame, [model, worse], NAMES, slices=["of"], examples=200)
    everything = np.ones(120, bool)
    assert result.model.metrics == compute(model, everything)
    assert result.baselines[0].metrics == (expected := compute(worse, everything))
    assert result.rows == 120 and [part.rows for part in result.model.slices] == [60, 60]
    for part in result.model.slices:
        assert part.metrics == compute(model, np.arange(120) % 2 == int(part.value))
    difference = result.baselines[0].differences["size/rmse"]
    assert difference.value == pytest.approx(result.model.metrics["size/rmse"] - expected["size/rmse"].expected)
    assert difference.interval and difference.interval[1] < 0
    assert {*result.model.intervals} == {*NAMES} - {"kind/confusion_matrix"}


def test_examples_are_rows_that_have_the_label_of_the_first_head(frame: Any, model: str) -> None:
    examples = evaluate(frame, model, NAMES, examples=200).examples
    assert sorted(example.row["key"] for example in examples) == np.flatnonzero(~KIND).tolist()
    predicted = load_model(model).predict({"x": np.asarray(ROWS["x"])})
    for example in examples:
        assert example.label == ROWS["kind"][example.row["key"]]
        assert example.prediction["kind_class"] == predicted["kind_class"][example.row["key"]]
        assert example.prediction["size_prediction"] == pytest.approx(predicted["size_prediction"][example.row["key"]])


def test_without_metrics_those_that_the_heads_name_are_computed(frame: Any, model: str) -> None:
    found = evaluate(frame, model).model.metrics
    assert [*found] == ["kind/accuracy", "kind/f1", "size/rmse"]
    assert found["size/rmse"] == compute(model, np.ones(120, bool))["size/rmse"]


def test_a_head_alone_may_be_evaluated(frame: Any, model: str) -> None:
    assert [*evaluate(frame, model, "size/mae").model.metrics] == ["size/mae"]


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ("accuracy", "metrics= has 'accuracy', but .* has the heads kind, size; write 'kind/accuracy' or 'size/acc"),
        ("color/accuracy", "'color/accuracy', but .* has the heads kind, size; write 'kind/accuracy' or 'size/acc"),
        ("size/accuracy", "metric 'accuracy' is for classification, but the recipe does not set the number of classes"),
    ],
)
def test_metrics_that_no_head_has_are_refused(frame: Any, model: str, metrics: str, message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        evaluate(frame, model, metrics)


def test_a_head_may_have_several_labels_at_once(spark: Any, tmp_path: Path) -> None:
    rows = heads.rows(100)
    x, kind = np.asarray(rows["x"]), np.asarray(rows["kind"])
    tags = np.stack([kind == 0, x[:, 0] > 0, x[:, 1] > x[:, 2]], axis=1).astype(np.int64)
    dataset = datasets.write(tmp_path / "dataset", {"train": {"x": x, "kind": kind, "tags": tags}})
    model = str(tmp_path / "model")
    fit(f"{heads.__name__}:with_tags", dataset=dataset, model=model, epochs=5, batch_size=20)
    columns = zip(x.tolist(), kind.tolist(), tags.tolist(), strict=True)
    frame = spark.createDataFrame(list(columns), "x array<float>, kind int, tags array<int>")
    found = evaluate(frame, model, ["tags/f1", "kind/accuracy"]).model.metrics
    predicted = load_model(model).output({"x": x})["tags"].cpu().numpy() > 0
    assert found["tags/f1"] == pytest.approx(reference.f1_score(tags, predicted, average="macro"))


def test_models_of_other_heads_are_no_baselines(frame: Any, model: str, tmp_path: Path) -> None:
    other = train(tmp_path, 1, "of_one_head")
    message = r"must have the same label, but .*'size' of shape \[\] \(head 'size'\), and .* is 'kind' of shape \[\]"
    with pytest.raises(TrainyardError, match=message):
        evaluate(frame, [model, other])


def test_a_null_is_refused_where_all_training_rows_had_a_label(frame: Any, tmp_path: Path) -> None:
    complete = train(tmp_path, 1, missing=False)
    with pytest.raises(Exception, match="column 'kind' has nulls"):
        evaluate(frame, complete, ["kind/accuracy"])


def test_predictions_have_the_columns_of_each_head(frame: Any, model: str) -> None:
    predicted = predict(frame, model, ["key"])
    assert predicted.columns == ["key", "kind_class", "size_prediction"]
    expected = load_model(model).predict({"x": np.asarray(ROWS["x"])})
    for row in predicted.collect():
        assert row.kind_class == expected["kind_class"][row.key]
        assert row.size_prediction == pytest.approx(expected["size_prediction"][row.key], rel=1e-5)
