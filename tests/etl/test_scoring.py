"""Evaluation and prediction by Spark, against scikit-learn and the model in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import metrics as truth

from etl import evaluate, predict
from tests.trainer import datasets
from trainer import bundle
from trainer.fit import fit
from trainyard.contract.errors import TrainyardError
from trainyard.contract.events import EventLog
from trainyard.contract.spec import EvaluateSpec, Place, PredictSpec, Source

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("model")
    batches = datasets.write(directory / "batches", {"train": datasets.blobs(400)})
    uri = str(directory / "model")
    params = {"limit": 3, "learning_rate": 0.02}
    fit("tests.trainer.recipes:linear", recipe_params=params, batches=batches, model=uri, epochs=1, batch_size=100)
    return uri


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("regression")
    batches = datasets.write(directory / "batches", {"train": datasets.blobs(400)})
    uri = str(directory / "model")
    fit("tests.trainer.recipes:regression", batches=batches, model=uri, epochs=1, batch_size=100)
    return uri


def frame(spark: Any, rows: datasets.Columns) -> Any:
    data = [
        (f"k{i}", [float(v) for v in x], int(y)) for i, (x, y) in enumerate(zip(rows["x"], rows["label"], strict=True))
    ]
    return spark.createDataFrame(data, "key string, x array<float>, label bigint").repartition(5)


def place(directory: Path) -> Place:
    return Place(dag_id="d", run_id="r", task_id="t", directory=str(directory / "run"))


def test_classification_metrics_equal_scikit_learns_in_one_process(spark: Any, model: str) -> None:
    rows = datasets.blobs(300, seed=5)
    found = evaluate.evaluate(
        frame(spark, rows), model, ["accuracy", "precision", "recall", "f1", "auroc", "confusion_matrix"]
    )
    output = bundle.load(model).output(rows)
    guess, chance = output.argmax(1).numpy(), output.softmax(1).numpy()
    label = rows["label"]
    assert 0.5 < found["accuracy"] < 1, "a perfect score would hide a mistake in the others"
    assert found["accuracy"] == pytest.approx(truth.accuracy_score(label, guess))
    assert found["precision"] == pytest.approx(truth.precision_score(label, guess, average="macro"))
    assert found["recall"] == pytest.approx(truth.recall_score(label, guess, average="macro"))
    assert found["f1"] == pytest.approx(truth.f1_score(label, guess, average="macro"))
    assert found["confusion_matrix"] == truth.confusion_matrix(label, guess).tolist()
    assert found["auroc"] == pytest.approx(truth.roc_auc_score(label, chance, multi_class="ovr"), abs=2e-3)


def test_regression_metrics_equal_scikit_learns_in_one_process(spark: Any, regression: str) -> None:
    rows = datasets.blobs(300, seed=5)
    found = evaluate.evaluate(frame(spark, rows), regression, ["mae", "mse", "rmse", "r2"])
    guess = bundle.load(regression).output(rows).numpy()
    label = rows["label"].astype(float)
    assert found["mae"] == pytest.approx(truth.mean_absolute_error(label, guess), rel=1e-5)
    assert found["mse"] == pytest.approx(truth.mean_squared_error(label, guess), rel=1e-5)
    assert found["rmse"] == pytest.approx(truth.mean_squared_error(label, guess) ** 0.5, rel=1e-5)
    assert found["r2"] == pytest.approx(truth.r2_score(label, guess), rel=1e-4)


def test_a_split_of_batches_is_evaluated(spark: Any, model: str, tmp_path: Path) -> None:
    rows = datasets.blobs(200, seed=6)
    uri = str(tmp_path / "batches")
    frame(spark, rows).write.format("batches").mode("overwrite").save(uri)
    spec = EvaluateSpec(place=place(tmp_path), model=model, batches=uri, split="train", metrics=("accuracy",))
    found = evaluate.run(spark, spec, EventLog(spec.place.directory, "t", "driver"))
    guess = bundle.load(model).output(rows).argmax(1).numpy()
    assert found["rows"] == 200
    assert found["metrics"] == {"accuracy": pytest.approx((guess == rows["label"]).mean())}


def test_a_classification_metric_of_a_regression_is_refused(spark: Any, regression: str) -> None:
    with pytest.raises(TrainyardError, match=r"metric 'accuracy' is one of classification.*classes="):
        evaluate.evaluate(frame(spark, datasets.blobs(10)), regression, ["accuracy"])


def test_a_missing_column_is_named(spark: Any, model: str) -> None:
    with pytest.raises(TrainyardError, match="what is evaluated has no column 'x'; it has key, label"):
        evaluate.evaluate(frame(spark, datasets.blobs(10)).drop("x"), model, ["accuracy"])


def predictions(spark: Any, model: str, directory: Path, rows: datasets.Columns, output: Path) -> dict[str, Any]:
    source = str(directory / "source")
    frame(spark, rows).write.mode("overwrite").parquet(source)
    spec = PredictSpec(
        place=place(directory), model=model, source=Source(format="parquet", path=source), keys=("key",),
        output=str(output), rows_per_batch=17,
    )  # fmt: skip
    return predict.run(spark, spec, EventLog(spec.place.directory, "t", "driver"))


def test_predictions_are_parquet_with_the_keys_of_their_rows(spark: Any, model: str, tmp_path: Path) -> None:
    rows = datasets.blobs(100, seed=7)
    found = predictions(spark, model, tmp_path, rows, tmp_path / "out")
    assert found["rows"] == 100 and found["columns"] == ["key", "class_"]
    guess = bundle.load(model).output(rows).argmax(1).numpy()
    read = {row.key: row.class_ for row in spark.read.parquet(str(tmp_path / "out")).collect()}
    assert read == {f"k{i}": int(g) for i, g in enumerate(guess)}


def test_a_prepare_that_returns_no_frame_is_named(spark: Any, model: str, tmp_path: Path) -> None:
    frame(spark, datasets.blobs(10)).write.parquet(str(tmp_path / "source"))
    spec = PredictSpec(
        place=place(tmp_path), model=model, source=Source(format="parquet", path=str(tmp_path / "source")),
        prepare="tests.etl.prepares:nothing", keys=("key",), output=str(tmp_path / "out"),
    )  # fmt: skip
    with pytest.raises(TrainyardError, match=r"prepares:nothing' returned NoneType; it must return a DataFrame"):
        predict.run(spark, spec, EventLog(spec.place.directory, "t", "driver"))


def test_predictions_replace_the_ones_before(spark: Any, model: str, tmp_path: Path) -> None:
    for rows in (30, 20):
        predictions(spark, model, tmp_path, datasets.blobs(rows), tmp_path / "out")
    assert spark.read.parquet(str(tmp_path / "out")).count() == 20
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_a_failure_leaves_the_predictions_before_as_they_were(spark: Any, model: str, tmp_path: Path) -> None:
    predictions(spark, model, tmp_path, datasets.blobs(30), tmp_path / "out")
    wrong = datasets.blobs(10)
    wrong["x"] = np.zeros((10, 5), np.float32)
    with pytest.raises(Exception, match="column 'x' has 5 elements in a row; the model takes shape"):
        predictions(spark, model, tmp_path, wrong, tmp_path / "out")
    assert spark.read.parquet(str(tmp_path / "out")).count() == 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "source"]


def test_predictions_never_replace_what_is_none(spark: Any, model: str, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/thesis.txt").write_text("years of work")
    with pytest.raises(TrainyardError, match="precious exists and holds no finished predictions"):
        predictions(spark, model, tmp_path, datasets.blobs(10), tmp_path / "precious")
    assert (tmp_path / "precious/thesis.txt").exists()
