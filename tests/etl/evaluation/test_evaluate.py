"""Evaluation by Spark, against scikit-learn and the model in one process."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.functions import lit
from sklearn import metrics as truth

from tests.etl.models import frame, log, task_key, trained
from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.etl.evaluation.evaluate import evaluate
from trainyard.etl.evaluation.queries import whole_queries
from trainyard.schemas import model_artifact as bundles
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.specs.evaluate import EvaluateSpec
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.trained_model import load_model

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("model"), "linear", limit=3, learning_rate=0.02)


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("worse"), "linear", limit=3, learning_rate=0.002)


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> str:
    return trained(tmp_path_factory.mktemp("regression"), "regression")


def test_a_split_of_batches_is_evaluated_whole_by_slices_and_beside_another_model(
    spark: Any, model: str, worse: str, tmp_path: Path
) -> None:
    rows = datasets.blobs(300, seed=6)
    uri = str(tmp_path / "dataset")
    frame(spark, rows).write.format("trainyard").mode("overwrite").save(uri)
    spec = EvaluateSpec(
        task_key=task_key(tmp_path), model=model, baselines=(worse,), dataset=uri, split="train", slices=("of",),
        metrics=("accuracy", "f1", "confusion_matrix", "tests.etl.metrics.own:top"), examples=3,
    )  # fmt: skip
    summary = evaluate.run(spark, spec, log(spec))

    def guess(of: str) -> Any:
        return load_model(of).output(rows).argmax(1).numpy()

    label = rows["label"]
    assert summary["rows"] == 300 and summary["uri"] == model
    assert summary["metrics"]["accuracy"] == pytest.approx(truth.accuracy_score(label, guess(model)))
    assert summary["metrics"]["f1"] == pytest.approx(truth.f1_score(label, guess(model), average="macro"))
    assert summary["metrics"]["confusion_matrix"] == truth.confusion_matrix(label, guess(model)).tolist()

    found = Evaluation.load(summary["evaluation"])
    assert [(s.column, s.value, s.rows) for s in found.model.slices] == [("of", "0", 150), ("of", "1", 150)]
    odd = np.arange(300) % 2 == 1
    assert found.model.slices[1].metrics["accuracy"] == pytest.approx((guess(model) == label)[odd].mean())
    other = found.baselines[0]
    assert other.metrics["accuracy"] == pytest.approx(truth.accuracy_score(label, guess(worse)))
    difference = other.differences["accuracy"]
    assert difference.value == pytest.approx(found.model.metrics["accuracy"] - other.metrics["accuracy"])
    assert difference.interval[0] < difference.value < difference.interval[1]

    chance = load_model(model).output(rows).softmax(1).numpy()
    losses = -np.log(chance[np.arange(300), label])
    worst = np.argsort(-losses)[:3]
    assert [e.loss for e in found.examples] == pytest.approx(losses[worst], rel=1e-4)
    assert [e.row["key"] for e in found.examples] == [f"k{i}" for i in worst]
    assert [e.prediction["class_"] for e in found.examples] == [int(guess(model)[i]) for i in worst]


def test_the_model_of_each_epoch_has_on_spark_the_figures_that_the_gang_had(spark: Any, tmp_path: Path) -> None:
    batches = str(tmp_path / "dataset")
    train, held_out = (
        frame(spark, datasets.blobs(rows, seed=rows)).withColumn("split", lit(split))
        for rows, split in ((400, "train"), (200, "validation"))
    )
    train.union(held_out).write.format("trainyard").mode("append").option("splitColumn", "split").save(batches)
    fitted = fit(
        "tests.trainer.recipes:linear", recipe_params={"limit": 3, "learning_rate": 0.002}, dataset=batches,
        model=str(tmp_path / "model"), epochs=3, batch_size=100, epoch_models=True,
    )  # fmt: skip
    models = [bundles.epoch_model_uri(str(tmp_path / "model"), number) for number in (1, 2, 3)]
    spec = EvaluateSpec(
        task_key=task_key(tmp_path), model=models[2], baselines=tuple(models[:2]), dataset=batches, split="validation",
        metrics=("accuracy", "log_loss"),
    )  # fmt: skip
    found = Evaluation.load(evaluate.run(spark, spec, log(spec))["evaluation"])
    on_spark = [scores.metrics for scores in (*found.baselines, found.model)]
    for here, there in zip(fitted.history.epochs, on_spark, strict=True):
        assert here["accuracy"] == pytest.approx(there["accuracy"])
        assert here["validation_loss"] == pytest.approx(there["log_loss"], rel=1e-5)
    assert on_spark[0]["log_loss"] > on_spark[2]["log_loss"]


def test_many_partitions_are_merged_before_they_reach_the_driver(
    spark: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = frame(spark, datasets.blobs(100, seed=2))
    once = evaluate(rows, [model], ["accuracy", "auroc"], examples=2)
    monkeypatch.setattr(evaluate, "_FEW_PARTS", 2)
    assert evaluate(rows, [model], ["accuracy", "auroc"], examples=2, parts=3) == once


def test_regression_metrics_equal_scikit_learns_in_one_process(spark: Any, regression: str) -> None:
    rows = datasets.blobs(300, seed=5)
    found = evaluate(frame(spark, rows), [regression], ["mae", "r2"]).model.metrics
    guess, label = load_model(regression).output(rows).numpy(), rows["label"].astype(float)
    assert found["mae"] == pytest.approx(truth.mean_absolute_error(label, guess), rel=1e-5)
    assert found["r2"] == pytest.approx(truth.r2_score(label, guess), rel=1e-4)


def test_rows_of_a_query_are_ranked_together_wherever_they_lie(spark: Any, regression: str) -> None:
    rows = datasets.blobs(60, seed=5)
    found = evaluate(frame(spark, rows), [regression], ["ndcg@5"], query="of", rows_per_batch=7)
    guess, query = load_model(regression).output(rows).numpy(), np.arange(60) % 2
    expected = [truth.ndcg_score([rows["label"][query == q]], [guess[query == q]], k=5) for q in (0, 1)]
    assert found.model.metrics["ndcg@5"] == pytest.approx(np.mean(expected))


@given(st.lists(st.integers(0, 4), max_size=30).map(sorted), st.lists(st.integers(0, 30), max_size=6))
def test_no_query_is_cut(query: list[int], cuts: list[int]) -> None:
    rows = pa.RecordBatch.from_pydict({"q": pa.array(query, pa.int64())})
    edges = [0, *sorted(min(cut, len(query)) for cut in cuts), len(query)]
    parts = [rows.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    found = [part.column("q").to_pylist() for part in whole_queries(parts, "q")]
    assert [value for part in found for value in part] == query
    seen = [set(part) for part in found]
    assert len(set().union(*seen)) == sum(map(len, seen)), "no query is in two batches"


def test_ranking_needs_to_know_the_query(spark: Any, regression: str) -> None:
    with pytest.raises(TrainyardError, match="metrics of ranking need query="):
        evaluate(frame(spark, datasets.blobs(10)), [regression], ["ndcg"])


def test_a_classification_metric_of_a_regression_is_refused(spark: Any, regression: str) -> None:
    with pytest.raises(TrainyardError, match=r"metric 'accuracy' is one of classification.*classes="):
        evaluate(frame(spark, datasets.blobs(10)), [regression], ["accuracy"])


def test_missing_columns_are_named(spark: Any, model: str) -> None:
    rows = frame(spark, datasets.blobs(10)).drop("x", "of")
    with pytest.raises(TrainyardError, match="what is evaluated has no column 'x'; it has no column 'of'"):
        evaluate(rows, [model], ["accuracy"], slices=["of"])


def test_an_output_that_is_no_number_is_refused(spark: Any, model: str) -> None:
    rows = datasets.blobs(10)
    rows["x"] = np.full((10, 8), np.inf, np.float32)
    with pytest.raises(Exception, match="returned what is not finite"):
        evaluate(frame(spark, rows), [model], ["accuracy"])


def test_slices_that_nobody_would_look_at_are_refused(spark: Any, model: str) -> None:
    with pytest.raises(Exception, match="slices= make more than 1,000 slices"):
        evaluate(frame(spark, datasets.blobs(1100)), [model], ["accuracy"], slices=["key"])


def test_no_rows_are_nothing_to_evaluate_on(spark: Any, model: str) -> None:
    with pytest.raises(TrainyardError, match="no rows to evaluate on"):
        evaluate(frame(spark, datasets.blobs(10)).where("false"), [model], ["accuracy"])
