"""Training from a DataFrame in the session at hand, as a stage of Spark ML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import StringIndexer, VectorAssembler

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.etl.estimator import TrainyardEstimator, TrainyardModel
from trainyard.schemas import manifest
from trainyard.trainer.model.trained_model import load_model

pytestmark = pytest.mark.spark
RECIPES = "tests.trainer.recipes"


def estimator(store: Path, recipe: str = "linear", **params: Any) -> TrainyardEstimator:
    given = {"workers": 2, "epochs": 2, "batch_size": 40} | params
    return TrainyardEstimator(recipe=f"{RECIPES}:{recipe}", store=str(store), **given)


def frame(spark: Any, rows: int = 300) -> Any:
    found = datasets.blobs(rows)
    data = [
        (f"k{i}", [float(v) for v in x], int(y), i % 5 == 0)
        for i, (x, y) in enumerate(zip(found["x"], found["label"], strict=True))
    ]
    return spark.createDataFrame(data, "key string, x array<float>, label bigint, held_out boolean")


@pytest.fixture(scope="module")
def fitted(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> TrainyardModel:
    store = tmp_path_factory.mktemp("store")
    return estimator(store, validation="held_out", recipe_params={"limit": 3}).fit(frame(spark))


def test_two_ranks_learn_from_a_frame(spark: Any, fitted: TrainyardModel) -> None:
    made = fitted.artifact
    assert made.ranks == 2 and made.metrics["accuracy"] > 0.9
    found = manifest.read_current(made.dataset)
    assert {name: split.rows for name, split in found.splits.items()} == {"train": 240, "validation": 60}


def test_the_model_adds_its_predictions_to_the_columns(spark: Any, fitted: TrainyardModel) -> None:
    given = frame(spark)
    predicted = fitted.transform(given)
    assert predicted.columns == [*given.columns, "class_"]
    rows = datasets.blobs(300)
    expected = load_model(fitted.getModel()).predict(rows)["class_"]
    assert {row.key: row.class_ for row in predicted.collect()} == {f"k{i}": int(c) for i, c in enumerate(expected)}
    assert sorted(map(str, predicted.select(given.columns).collect())) == sorted(map(str, given.collect()))


def test_rows_that_differ_in_length_are_learnt_in_buckets_by_weight(spark: Any, tmp_path: Path) -> None:
    found = datasets.sequences(200)
    rows = zip(found["tokens"], found["frames"], found["label"], strict=True)
    data = [(t.tolist(), f.ravel().tolist(), int(y), float(1 + y)) for t, f, y in rows]
    given = spark.createDataFrame(data, "tokens array<bigint>, frames array<float>, label bigint, weight double")
    learner = estimator(
        tmp_path, "pooled", workers=1, variable_length=["tokens", "frames"], shapes={"frames": [4]}, bucket_by="tokens",
        weight_by="weight",
    )  # fmt: skip
    fitted = learner.fit(given)
    assert fitted.artifact.metrics["loss"] < 1
    predicted = [row.class_ for row in fitted.transform(given).collect()]
    assert np.mean(np.array(predicted) == found["label"]) > 0.8


def test_a_pipeline_with_vectors_and_indexed_labels_is_saved_and_loaded(spark: Any, tmp_path: Path) -> None:
    rows = frame(spark).selectExpr("key", *(f"x[{i}] as x{i}" for i in range(8)), "concat('kind ', label) as kind")
    stages = [
        VectorAssembler(inputCols=[f"x{i}" for i in range(8)], outputCol="x"),
        StringIndexer(inputCol="kind", outputCol="label", stringOrderType="alphabetAsc"),
        estimator(tmp_path / "store", validation=0.2, recipe_params={"limit": 3}),
    ]
    Pipeline(stages=stages).save(str(tmp_path / "pipeline"))
    loaded = Pipeline.load(str(tmp_path / "pipeline"))
    assert loaded.getStages()[-1].getRecipeParams() == {"limit": 3}
    model = loaded.fit(rows)
    model.save(str(tmp_path / "model"))
    predicted = PipelineModel.load(str(tmp_path / "model")).transform(rows).toPandas()
    x = np.stack([vector.toArray() for vector in predicted["x"]]).astype(np.float32)
    expected = load_model(model.stages[-1].getModel()).predict({"x": x})["class_"]
    assert (predicted["class_"] == expected).all()
    assert (predicted["class_"] == predicted["label"]).mean() > 0.9


def test_params_are_set_and_read_as_those_of_spark(tmp_path: Path) -> None:
    made = estimator(tmp_path).setBatchSize(32).setEarlyStopping(3)
    assert (made.getBatchSize(), made.getEarlyStopping(), made.getMonitor()) == (32, 3, "loss")
    assert made.copy({made.epochs: 7}).getEpochs() == 7 and made.getEpochs() == 2
    assert "batch_size: rows over all ranks before one update (default: 64, current: 32)" in made.explainParams()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"epochs": 0}, r"TrainyardEstimator: options.epochs"),
        ({"strategy": "gossip"}, r"TrainyardEstimator: strategy"),
        ({"validation": 1.5}, r"validation=1.5 is no fraction between 0 and 1"),
        ({"validation": "label"}, r"validation='label' is a column of type bigint; name a boolean one"),
        ({"validation": "nowhere"}, r"validation names the column 'nowhere', which is not there; there are key, x"),
        ({"recipe": "images"}, r"recipe 'tests.trainer.recipes:images' cannot be imported"),
        ({"recipe": "mixed"}, r"the recipe names the column 'image', which is not there"),
        ({"shapes": {"y": [2, 4]}}, r"shapes names the column 'y', which is not there"),
        ({"epoch": 3}, r"TrainyardEstimator has no param 'epoch'; it has accumulate, balance"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    spark: Any, tmp_path: Path, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainyardError, match=message):
        estimator(tmp_path / "store", **params).fit(frame(spark, 10))
    assert not (tmp_path / "store").exists()


def test_what_is_missing_is_asked_for(spark: Any) -> None:
    with pytest.raises(TrainyardError, match=r"TrainyardEstimator needs store=: where batches and models go"):
        TrainyardEstimator(recipe=f"{RECIPES}:linear").fit(frame(spark, 10))


def test_a_class_that_is_no_whole_number_is_refused(spark: Any, tmp_path: Path) -> None:
    rows = frame(spark, 10).selectExpr("x", "label + 0.5d as label")
    with pytest.raises(Exception, match=r"column 'label' numbers classes, so that it must be whole: \d.5"):
        estimator(tmp_path, recipe_params={"limit": 3}).fit(rows)


def test_a_column_that_is_there_already_is_not_overwritten(spark: Any, fitted: TrainyardModel) -> None:
    with pytest.raises(TrainyardError, match="column 'class_' is both a key and an output of the model; rename it"):
        fitted.transform(frame(spark, 10).withColumnRenamed("key", "class_"))
