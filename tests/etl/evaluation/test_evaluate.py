"""Metrics of evaluation on Spark equal those of scikit-learn and the model in one process."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.functions import lit
from scipy.special import softmax
from sklearn import metrics as reference

from tests.etl.models import make_frame, make_log, make_task_key, train, train_total
from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.etl.evaluation import evaluate as evaluation
from trainyard.etl.evaluation.evaluate import evaluate
from trainyard.etl.evaluation.queries import regroup_batches
from trainyard.etl.evaluation.states import read_examples, read_sums
from trainyard.etl.jobs.evaluate import run
from trainyard.etl.jobs.predict import predict
from trainyard.etl.metrics.sums import RANGE_KEYS
from trainyard.etl.scoring.scan import DatasetScan
from trainyard.models import ensembles
from trainyard.schemas import model_artifact
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.results import EvaluationsResult
from trainyard.schemas.specs.evaluate import EvaluateSpec
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("model"), "linear", limit=3, learning_rate=0.02)


@pytest.fixture(scope="module")
def worse(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("worse"), "linear", limit=3, learning_rate=0.002)


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> str:
    return train(tmp_path_factory.mktemp("regression"), "regression")


def test_without_metrics_those_of_the_recipe_are_computed(spark: Any, model: str) -> None:
    rows = datasets.blobs(60, seed=7)
    result = evaluate(make_frame(spark, rows), model)
    recipe = load_model(model).recipe
    recipe.metrics["accuracy"].update(load_model(model).output(rows), torch.from_numpy(rows["label"]))
    assert result.model.metrics == {"recipe:accuracy": pytest.approx(recipe.metrics["accuracy"].compute().item())}


def test_without_metrics_those_that_the_recipe_names_are_computed_with_intervals(spark: Any, tmp_path: Path) -> None:
    model, rows = train(tmp_path / "model", "naming"), datasets.blobs(60, seed=7)
    result = evaluate(make_frame(spark, rows), model)
    found = load_model(model).output(rows).argmax(1).numpy()
    assert result.model.metrics == {
        "accuracy": pytest.approx(reference.accuracy_score(rows["label"], found)),
        "f1": pytest.approx(reference.f1_score(rows["label"], found, average="macro")),
    }
    low, high = result.model.intervals["accuracy"]
    assert low < result.model.metrics["accuracy"] <= high


def test_a_split_is_evaluated_over_all_rows_by_slice_and_against_a_baseline(
    spark: Any, model: str, worse: str, tmp_path: Path
) -> None:
    rows = datasets.blobs(300, seed=6)
    uri = str(tmp_path / "dataset")
    make_frame(spark, rows).write.format("trainyard").mode("overwrite").save(uri)
    spec = EvaluateSpec(
        task_key=make_task_key(tmp_path), model=model, baselines=(worse,), dataset=uri, split="train", slices=("of",),
        metrics=("accuracy", "f1", "confusion_matrix", "tests.etl.metrics.own:top"), examples=3,
    )  # fmt: skip
    summary = run(spark, spec, make_log(spec)).to_xcom()

    def predict(uri: str) -> Any:
        return load_model(uri).output(rows).argmax(1).numpy()

    label = rows["label"]
    assert summary["rows"] == 300 and summary["uri"] == model
    assert summary["metrics"]["accuracy"] == pytest.approx(reference.accuracy_score(label, predict(model)))
    assert summary["metrics"]["f1"] == pytest.approx(reference.f1_score(label, predict(model), average="macro"))

    result = Evaluation.load(summary["evaluation"])
    assert result.model.metrics["confusion_matrix"] == reference.confusion_matrix(label, predict(model)).tolist()
    assert [(s.column, s.value, s.rows) for s in result.model.slices] == [("of", "0", 150), ("of", "1", 150)]
    odd = np.arange(300) % 2 == 1
    assert result.model.slices[1].metrics["accuracy"] == pytest.approx((predict(model) == label)[odd].mean())
    baseline = result.baselines[0]
    assert baseline.metrics["accuracy"] == pytest.approx(reference.accuracy_score(label, predict(worse)))
    difference = baseline.differences["accuracy"]
    assert difference.value == pytest.approx(result.model.metrics["accuracy"] - baseline.metrics["accuracy"])
    assert difference.interval[0] < difference.value < difference.interval[1]

    probability = load_model(model).output(rows).softmax(1).numpy()
    losses = -np.log(probability[np.arange(300), label])
    worst = np.argsort(-losses)[:3]
    assert [e.loss for e in result.examples] == pytest.approx(losses[worst], rel=1e-4)
    assert [e.row["key"] for e in result.examples] == [f"k{i}" for i in worst]
    assert [e.prediction["class_"] for e in result.examples] == [int(predict(model)[i]) for i in worst]


def test_each_of_several_models_has_the_evaluation_that_it_has_alone(
    spark: Any, model: str, worse: str, tmp_path: Path
) -> None:
    """The rows are in two tasks with several record batches each, and the champion is one of the models."""
    rows, uri = datasets.blobs(300, seed=6), str(tmp_path / "storage/dataset")
    writer = make_frame(spark, rows).repartition(2).write.format("trainyard").mode("overwrite")
    writer.option("rowsPerBatch", "40").save(uri)
    key = make_task_key(tmp_path).model_copy(update={"directory": f"{Path(model).parent}/runs/d/r"})
    spec = EvaluateSpec(
        task_key=key, models=(model, worse, model), baselines=(worse,), dataset=uri, split="train", slices=("of",),
        metrics=("accuracy", "auroc"), examples=3, confidence=0.9,
    )  # fmt: skip
    result = run(spark, spec, make_log(spec))
    assert isinstance(result, EvaluationsResult) and [*result.evaluations] == ["model", worse]
    rows_read = DatasetScan(spark, uri, {"split": "train"})
    for name, found in zip((model, worse), result.evaluations.values(), strict=True):
        stored = Evaluation.load(found.evaluation)
        alone = evaluate(rows_read, [name, worse], spec.metrics, slices=spec.slices, examples=3, confidence=0.9)
        assert (found.uri, found.rows) == (name, 300) and stored.model.uri == name
        assert [one.loss for one in stored.examples] == [pytest.approx(one.loss) for one in alone.examples]
        assert [one.row for one in stored.examples] == [one.row for one in alone.examples]
        for metric in spec.metrics:
            assert stored.model.metrics[metric] == pytest.approx(alone.model.metrics[metric], abs=5e-3)
            by = stored.baselines[0].differences[metric]
            assert by.value == pytest.approx(alone.baselines[0].differences[metric].value, abs=5e-3)
            assert (by.value == 0) is (name == worse)
        assert [part.metrics["accuracy"] for part in stored.model.slices] == [
            part.metrics["accuracy"] for part in alone.model.slices
        ]


def test_an_error_of_one_of_several_models_names_it(spark: Any, model: str, tmp_path: Path) -> None:
    """Its forward raises for some rows only, so that it fails in a task."""
    failing, dataset = str(tmp_path / "model"), datasets.write(tmp_path / "dataset", {"train": datasets.blobs(400)})
    fit("tests.etl.recipes:failing", dataset=dataset, model=failing, epochs=1, batch_size=100)
    rows = datasets.blobs(60, seed=6)
    rows["x"] = np.asarray(rows["x"]) + 1000
    with pytest.raises(Exception, match=rf"ValueError: too large[\s\S]*It is an error of the model {failing}\."):
        evaluate(make_frame(spark, rows), [model, failing], ["accuracy"])


def test_an_ensemble_is_evaluated_and_predicted_beside_its_members(
    spark: Any, model: str, worse: str, tmp_path: Path
) -> None:
    uri, rows = str(tmp_path / "both"), datasets.blobs(200, seed=6)
    ensembles.save(uri, ensembles.build([model_artifact.find(name) for name in (model, worse)], weights=[1, 3]))
    frame = make_frame(spark, rows)
    result = evaluate(frame, [uri, model, worse], ["accuracy", "log_loss"])
    probabilities = [softmax(load_model(name).output(rows).numpy(), 1) for name in (model, worse)]
    expected = np.average(probabilities, axis=0, weights=[1, 3])
    assert result.model.metrics == {
        "accuracy": pytest.approx(reference.accuracy_score(rows["label"], expected.argmax(1))),
        "log_loss": pytest.approx(-np.log(expected[np.arange(200), rows["label"]]).mean(), rel=1e-5),
    }
    assert result.baselines[1].metrics["accuracy"] == pytest.approx(
        reference.accuracy_score(rows["label"], probabilities[1].argmax(1))
    )
    predicted = predict(frame, uri, keys=["key"]).toPandas()
    numbers = predicted["key"].str[1:].astype(int)
    np.testing.assert_array_equal(predicted["class_"], expected.argmax(1)[numbers])


def test_one_model_and_one_metric_may_be_named_without_a_list(spark: Any, model: str) -> None:
    rows = make_frame(spark, datasets.blobs(30, seed=6))
    assert evaluate(rows, model, "accuracy").model == evaluate(rows, [model], ["accuracy"]).model


def test_weights_are_scored_that_a_later_training_has_replaced(spark: Any, tmp_path: Path) -> None:
    rows, uri = make_frame(spark, datasets.blobs(90, seed=6)), train(tmp_path, "linear", limit=3, learning_rate=0.002)
    older = model_artifact.read_current(uri).weights_sha256
    expected = evaluate(rows, [uri], ["accuracy"]).model
    shutil.copytree(train(tmp_path / "later", "linear", limit=3, learning_rate=0.02), uri, dirs_exist_ok=True)
    assert evaluate(rows, [uri], ["accuracy"]).model.weights_sha256 != older
    assert evaluate(rows, f"{uri}@{older[:8]}", ["accuracy"]).model == expected


def test_the_model_of_each_epoch_has_the_same_metrics_on_spark_as_in_training(spark: Any, tmp_path: Path) -> None:
    dataset = str(tmp_path / "dataset")
    train, validation = (
        make_frame(spark, datasets.blobs(rows, seed=rows)).withColumn("split", lit(split))
        for rows, split in ((400, "train"), (200, "validation"))
    )
    train.union(validation).write.format("trainyard").mode("append").option("splitColumn", "split").save(dataset)
    fitted = fit(
        "tests.trainer.recipes:linear", recipe_params={"limit": 3, "learning_rate": 0.002}, dataset=dataset,
        model=str(tmp_path / "model"), epochs=3, batch_size=100, epoch_models=True,
    )  # fmt: skip
    models = [model_artifact.epoch_model_uri(str(tmp_path / "model"), number) for number in (1, 2, 3)]
    spec = EvaluateSpec(
        task_key=make_task_key(tmp_path), model=models[2], baselines=tuple(models[:2]), dataset=dataset,
        split="validation", metrics=("accuracy", "log_loss"),
    )  # fmt: skip
    result = Evaluation.load(run(spark, spec, make_log(spec)).evaluation)
    on_spark = [scores.metrics for scores in (*result.baselines, result.model)]
    for trained, scored in zip(fitted.history.epochs, on_spark, strict=True):
        assert trained["accuracy"] == pytest.approx(scored["accuracy"])
        assert trained["validation_loss"] == pytest.approx(scored["log_loss"], rel=1e-5)
    assert on_spark[0]["log_loss"] > on_spark[2]["log_loss"]


@pytest.mark.parametrize("kind", ["frame", "scan"])
def test_areas_are_those_of_all_rows_however_close_together_scores_are(
    spark: Any, model: str, worse: str, tmp_path: Path, kind: str
) -> None:
    """The network of the recipe is linear, so features that are scaled down have logits close together."""
    rows = datasets.blobs(300, seed=6)
    rows = rows | {"x": np.asarray(rows["x"]) * 1e-3}
    frame, uri = make_frame(spark, rows), str(tmp_path / "dataset")
    frame.write.format("trainyard").mode("overwrite").save(uri)
    evaluated = frame if kind == "frame" else DatasetScan(spark, uri, {"split": "train"})
    result = evaluate(evaluated, [model, worse], ["auroc"])
    for uri, scores in ((model, result.model), (worse, result.baselines[0])):
        probability = load_model(uri).output(rows).double().softmax(1).numpy()
        area = reference.roc_auc_score(rows["label"], probability, multi_class="ovr")
        assert scores.metrics["auroc"] == pytest.approx(area, abs=5e-3)


def test_rows_whose_label_the_loss_ignores_are_left_out(spark: Any, tmp_path: Path) -> None:
    model = train(tmp_path, "ignoring")
    rows = datasets.blobs(90, seed=6)
    ignored = np.arange(90) % 3 == 0
    counted = {name: np.asarray(values)[~ignored] for name, values in rows.items()}
    rows["label"] = np.where(ignored, -100, rows["label"])
    frame, names = make_frame(spark, rows), ["accuracy", "log_loss", "confusion_matrix"]
    result = evaluate(frame, model, names, examples=90)
    expected = evaluate(make_frame(spark, counted), model, names).model.metrics
    assert result.model.metrics == {name: pytest.approx(np.asarray(value)) for name, value in expected.items()}
    assert {example.loss for example in result.examples if example.label == -100} == {0}


def test_tasks_merge_the_sums_of_all_slices_before_they_reach_the_driver(
    spark: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[pa.RecordBatch] = []
    monkeypatch.setattr(evaluation, "read_sums", lambda state: gathered.append(state) or read_sums(state))
    rows = make_frame(spark, datasets.blobs(100, seed=2)).repartition(4)
    result = evaluate(rows, [model], ["accuracy", "auroc"], slices=["of", "label"], examples=2)
    assert {scores.column for scores in result.model.slices} == {"of", "label"}
    keys = [tuple(row.values()) for state in gathered for row in read_sums(state).select(RANGE_KEYS).to_pylist()]
    assert len(keys) == len(set(keys)), "no cell is gathered twice"
    examples = [text for state in gathered for texts in read_examples(state).values() for text in texts]
    assert len(examples) == len(result.examples) == 2


def test_regression_metrics_equal_scikit_learns_in_one_process(spark: Any, regression: str) -> None:
    rows = datasets.blobs(300, seed=5)
    metrics = evaluate(make_frame(spark, rows), [regression], ["mae", "r2"]).model.metrics
    predicted, label = load_model(regression).output(rows).numpy(), rows["label"].astype(float)
    assert metrics["mae"] == pytest.approx(reference.mean_absolute_error(label, predicted), rel=1e-5)
    assert metrics["r2"] == pytest.approx(reference.r2_score(label, predicted), rel=1e-4)


def test_rows_of_a_query_are_ranked_together_from_all_partitions(spark: Any, regression: str) -> None:
    rows = datasets.blobs(60, seed=5)
    result = evaluate(make_frame(spark, rows), [regression], ["ndcg@5"], query="of", rows_per_batch=7)
    predicted, query = load_model(regression).output(rows).numpy(), np.arange(60) % 2
    expected = [reference.ndcg_score([rows["label"][query == q]], [predicted[query == q]], k=5) for q in (0, 1)]
    assert result.model.metrics["ndcg@5"] == pytest.approx(np.mean(expected))


@given(st.lists(st.integers(0, 4), max_size=30).map(sorted), st.lists(st.integers(0, 30), max_size=6))
def test_no_query_is_in_two_batches(query: list[int], cuts: list[int]) -> None:
    rows = pa.RecordBatch.from_pydict({"q": pa.array(query, pa.int64())})
    edges = [0, *sorted(min(cut, len(query)) for cut in cuts), len(query)]
    parts = [rows.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    batches = [part.column("q").to_pylist() for part in regroup_batches(parts, "q")]
    assert [value for part in batches for value in part] == query
    queries = [set(part) for part in batches]
    assert len(set().union(*queries)) == sum(map(len, queries)), "no query is in two batches"


def test_ranking_without_a_query_is_refused(spark: Any, regression: str) -> None:
    with pytest.raises(TrainyardError, match="metrics of ranking need query="):
        evaluate(make_frame(spark, datasets.blobs(10)), [regression], ["ndcg"])


def test_a_classification_metric_of_a_regression_is_refused(spark: Any, regression: str) -> None:
    with pytest.raises(TrainyardError, match=r"metric 'accuracy' is for classification.*classes="):
        evaluate(make_frame(spark, datasets.blobs(10)), [regression], ["accuracy"])


def test_all_missing_columns_are_named(spark: Any, model: str) -> None:
    rows = make_frame(spark, datasets.blobs(10)).drop("x", "of")
    with pytest.raises(TrainyardError, match="the rows to evaluate have no column 'x'; they have no column 'of'"):
        evaluate(rows, [model], ["accuracy"], slices=["of"])


def test_an_output_that_is_not_finite_is_refused(spark: Any, model: str) -> None:
    rows = datasets.blobs(10)
    rows["x"] = np.full((10, 8), np.inf, np.float32)
    with pytest.raises(Exception, match=r"the output of the model .* has values that are not finite"):
        evaluate(make_frame(spark, rows), [model], ["accuracy"])


def test_too_many_slices_are_refused(spark: Any, model: str) -> None:
    with pytest.raises(Exception, match="slices= results in more than 1,000 slices"):
        evaluate(make_frame(spark, datasets.blobs(1100)), [model], ["accuracy"], slices=["key"])


def test_an_evaluation_without_rows_is_refused(spark: Any, model: str) -> None:
    with pytest.raises(TrainyardError, match="no rows to evaluate"):
        evaluate(make_frame(spark, datasets.blobs(10)).where("false"), [model], ["accuracy"])


def test_labels_are_converted_to_the_type_of_each_model_or_refused(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(8).selectExpr("array(cast(id as float)) as x", "id + 1 as y")
    models = {kind: train_total(rows.withColumn("y", rows.y.cast(kind)), tmp_path / kind) for kind in ("int", "double")}
    for order in itertools.permutations(models.values()):
        whole = evaluate(rows.withColumn("y", rows.y.cast("float")), order, ["mae", "r2"])
        assert [scores.metrics["mae"] for scores in (whole.model, *whole.baselines)] == [1.0, 1.0]
        with pytest.raises(Exception, match=r"column 'y' has the value \d.75, which its type in the training, int32"):
            evaluate(rows.withColumn("y", rows.y + 0.75), order, ["mae"])
    fractions = evaluate(rows.withColumn("y", (rows.y + 0.75).cast("float")), [models["double"]], ["mae"])
    assert fractions.model.metrics["mae"] == 1.75
    with pytest.raises(TrainyardError, match="have string in column 'y', but the model was trained on int32"):
        evaluate(rows.withColumn("y", rows.y.cast("string")), [models["int"]], ["mae"])


def test_a_metric_or_slice_that_is_named_twice_counts_rows_once(spark: Any, model: str) -> None:
    rows = make_frame(spark, datasets.blobs(30))
    once, twice = (
        evaluate(rows, [model], ["tests.etl.metrics.own:top", "accuracy"] * times, slices=["of"] * times)
        for times in (1, 2)
    )
    assert [part.rows for part in twice.model.slices] == [15, 15]
    assert twice.model.metrics == once.model.metrics


def test_null_and_the_text_null_are_two_slices(spark: Any, model: str) -> None:
    rows = make_frame(spark, datasets.blobs(40)).selectExpr(
        "*",
        """case when of = 0 then null when key like '%1' then 'null' when key like '%3' then '"' else 'a' end as s""",
    )
    slices = evaluate(rows, [model], ["accuracy"], slices=["s"]).model.slices
    assert {part.value: part.rows for part in slices} == {"null": 20, '"null"': 4, '"\\""': 4, "a": 12}


@pytest.mark.parametrize(
    ("column", "kind"),
    [("x", "array<float>"), ("encode(key, 'utf-8')", "binary"), ("map(1, 2)", "map<int,int>"),
     ("named_struct('a', 1)", "struct<a:int>")],
)  # fmt: skip
def test_slices_by_a_column_that_has_no_single_values_are_refused(
    spark: Any, model: str, column: str, kind: str
) -> None:
    rows = make_frame(spark, datasets.blobs(10)).selectExpr("*", f"{column} as s")
    with pytest.raises(TrainyardError, match=f"slices names the column 's' of type {kind}; name columns of numbers"):
        evaluate(rows, [model], ["accuracy"], slices=["s"])


def test_names_of_columns_may_have_dots(spark: Any, tmp_path: Path) -> None:
    rows = spark.range(9).selectExpr("cast(id as float) as `a.b`", "cast(id as float) as `a.y`", "id % 3 as `a.q`")
    uri = train_total(rows, tmp_path, features=["a.b"], label="a.y")
    result = evaluate(rows, [uri], ["ndcg", "r2"], query="a.q", slices=["a.q"], examples=1)
    assert result.model.metrics == {"ndcg": 1.0, "r2": 1.0}
    assert [part.rows for part in result.model.slices] == [3, 3, 3]


@pytest.mark.parametrize("prediction", ["half", "learned"])
def test_examples_have_the_predictions_that_a_prediction_has(spark: Any, tmp_path: Path, prediction: str) -> None:
    """Of types that NumPy does not have, and computed with parameters."""
    rows = spark.range(9).selectExpr("cast(id as float) as x", "cast(id + 1 as float) as y")
    uri = train_total(rows, tmp_path, prediction=prediction)
    [example] = evaluate(rows, [uri], ["mae"], examples=1).examples
    assert example.prediction == {"prediction": example.row["x"]}


def test_a_row_without_a_query_is_refused(spark: Any, regression: str) -> None:
    rows = make_frame(spark, datasets.blobs(10)).selectExpr("*", "nullif(of, 1) as query")
    with pytest.raises(Exception, match="query='query' names a column that is null in a row; fill it, or drop rows"):
        evaluate(rows, [regression], ["ndcg"], query="query")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("Both", "returns a dict for 2 rows, .* return a tensor of shape"),
        ("Elements", "returns a value for each element of a var"),
    ],
)
def test_an_output_that_metrics_cannot_compare_is_refused(spark: Any, tmp_path: Path, model: str, message: str) -> None:
    rows = spark.range(4).selectExpr("array(cast(id as float)) as x", "cast(id as float) as y")
    uri = train_total(rows, tmp_path, variable_length="x", model=model)
    with pytest.raises(TrainyardError, match=f"the network of {uri} {message}"):
        evaluate(rows, [uri], ["mae"])
