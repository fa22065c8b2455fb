"""The estimator trains on a DataFrame in the current session, as a stage of Spark ML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import MulticlassClassificationEvaluator
from pyspark.ml.feature import SQLTransformer, StringIndexer, VectorAssembler
from pyspark.ml.linalg import Vectors, VectorUDT
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from tests.etl.models import train_total
from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.etl.estimator import TrainyardEstimator, TrainyardModel
from trainyard.schemas.datasets import manifest
from trainyard.schemas.specs.strategies import Averaging
from trainyard.trainer.model.artifacts.trained_model import load_model

pytestmark = pytest.mark.spark
RECIPES = "tests.trainer.recipes"


def make_estimator(store: Path, recipe: str = "linear", **params: Any) -> TrainyardEstimator:
    values = {"workers": 2, "epochs": 2, "batch_size": 40} | params
    return TrainyardEstimator(recipe=f"{RECIPES}:{recipe}", store=str(store), **values)


def make_frame(spark: Any, rows: int = 300) -> Any:
    blobs = datasets.blobs(rows)
    data = [
        (f"k{i}", [float(v) for v in x], int(y), i % 5 == 0)
        for i, (x, y) in enumerate(zip(blobs["x"], blobs["label"], strict=True))
    ]
    return spark.createDataFrame(data, "key string, x array<float>, label bigint, in_validation boolean")


@pytest.fixture(scope="module")
def fitted(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> TrainyardModel:
    store = tmp_path_factory.mktemp("store")
    return make_estimator(store, validation="in_validation", recipe_params={"limit": 3}).fit(make_frame(spark))


def test_two_workers_train_on_a_dataframe(spark: Any, fitted: TrainyardModel) -> None:
    artifact = fitted.artifact
    assert artifact.workers == 2 and artifact.metrics["accuracy"] > 0.9
    dataset = manifest.read_current(artifact.dataset)
    assert {name: split.rows for name, split in dataset.splits.items()} == {"train": 240, "validation": 60}


def test_categories_and_a_label_of_strings_become_indices_and_predictions_name_classes(
    spark: Any, tmp_path: Path
) -> None:
    frame = spark.createDataFrame(
        [("Köln" if i % 3 else "Bonn", "apple" if i % 3 else "pear", i % 5 == 0) for i in range(200)],
        "city string, kind string, held_out boolean",
    )
    estimator = TrainyardEstimator(
        recipe="tests.etl.fitting.recipes:kind_of_city", store=str(tmp_path), validation="held_out", epochs=20,
        batch_size=20, categories=["city"], label="kind",
    )  # fmt: skip
    predicted = estimator.fit(frame).transform(frame)
    assert predicted.columns == ["city", "kind", "held_out", "class"]
    pairs = {(row.city, row["class"]) for row in predicted.select("city", "class").distinct().collect()}
    assert pairs == {("Köln", "apple"), ("Bonn", "pear")}


def test_an_estimator_trains_heads_on_rows_without_some_labels(spark: Any, tmp_path: Path) -> None:
    rows = [
        ([float(i % 3)] * 8, None if i % 4 == 0 else "abc"[i % 3], None if i % 5 == 0 else i / 100) for i in range(90)
    ]
    frame = spark.createDataFrame(rows, "x array<float>, kind string, size double")
    estimator = TrainyardEstimator(
        recipe="tests.trainer.heads:two", store=str(tmp_path), epochs=1, batch_size=20, label=["kind"],
        nullable=["kind", "size"],
    )  # fmt: skip
    model = estimator.fit(frame)
    assert model.transform(frame).columns == ["x", "kind", "size", "kind_class", "size_prediction"]
    assert manifest.read_current(model.artifact.dataset).split("train").statistics["kind"].nulls == 23
    assert {*model.transform(frame).select("kind_class").toPandas()["kind_class"]} <= {"a", "b", "c"}


def test_the_model_adds_its_predictions_to_the_columns(spark: Any, fitted: TrainyardModel) -> None:
    frame = make_frame(spark)
    predicted = fitted.transform(frame)
    assert predicted.columns == [*frame.columns, "class_"]
    rows = datasets.blobs(300)
    expected = load_model(fitted.getModel()).predict(rows)["class_"]
    assert {row.key: row.class_ for row in predicted.collect()} == {f"k{i}": int(c) for i, c in enumerate(expected)}
    assert sorted(map(str, predicted.select(frame.columns).collect())) == sorted(map(str, frame.collect()))


def test_names_of_columns_may_have_dots(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("cast(id as float) as `a.b`", "1f as y")
    model = TrainyardModel(train_total(frame, tmp_path, features=["a.b"]))
    assert sorted(map(tuple, model.transform(frame).collect())) == [(n, 1.0, n) for n in range(3)]


def test_variable_length_rows_are_trained_on_in_buckets_and_by_weight(spark: Any, tmp_path: Path) -> None:
    sequences = datasets.sequences(200)
    rows = zip(sequences["tokens"], sequences["frames"], sequences["label"], strict=True)
    data = [(t.tolist(), f.ravel().tolist(), int(y), float(1 + y)) for t, f, y in rows]
    frame = spark.createDataFrame(data, "tokens array<bigint>, frames array<float>, label bigint, weight double")
    estimator = make_estimator(
        tmp_path, "pooled", workers=1, variable_length=["tokens", "frames"], shapes={"frames": [4]}, bucket_by="tokens",
        weight_by="weight",
    )  # fmt: skip
    fitted = estimator.fit(frame)
    assert fitted.artifact.metrics["loss"] < 1
    predicted = [row.class_ for row in fitted.transform(frame).collect()]
    assert np.mean(np.array(predicted) == sequences["label"]) > 0.8


def test_a_pipeline_with_vectors_and_indexed_labels_is_saved_and_loaded(spark: Any, tmp_path: Path) -> None:
    rows = make_frame(spark).selectExpr("key", *(f"x[{i}] as x{i}" for i in range(8)), "concat('kind ', label) as kind")
    stages = [
        VectorAssembler(inputCols=[f"x{i}" for i in range(8)], outputCol="x"),
        StringIndexer(inputCol="kind", outputCol="label", stringOrderType="alphabetAsc"),
        make_estimator(tmp_path / "store", validation=0.2, recipe_params={"limit": 3}),
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


def test_params_have_accessors_like_those_of_spark_ml(tmp_path: Path) -> None:
    estimator = make_estimator(tmp_path).setBatchSize(32).setEarlyStopping(3)
    assert (estimator.getBatchSize(), estimator.getEarlyStopping(), estimator.getMonitor()) == (32, 3, "loss")
    assert estimator.copy({estimator.epochs: 7}).getEpochs() == 7 and estimator.getEpochs() == 2
    text = "batch_size: The global batch: rows over all workers before one update. (default: 64, current: 32)"
    assert text in estimator.explainParams()


def test_every_option_of_a_training_is_a_param_with_its_text(tmp_path: Path) -> None:
    estimator = make_estimator(tmp_path, cache_gb=3.0, checkpoint_steps=5, formats=["onnx"])
    spec = estimator._build_spec(str(tmp_path), "run")
    assert (spec.options.cache_gb, spec.options.checkpoint_steps, spec.formats) == (3.0, 5, ("onnx",))
    assert all(param.doc.endswith(".") for param in estimator.params)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"epochs": 0}, r"TrainyardEstimator: epochs=0: write a number greater than 0\."),
        ({"strategy": "gossip"}, r"TrainyardEstimator: strategy"),
        ({"validation": 1.5}, r"validation=1.5 is not valid; use a fraction between 0 and 1"),
        ({"validation": "label"}, r"validation='label' is a column of type bigint; use a boolean column"),
        ({"validation": "nowhere"}, r"validation names the column 'nowhere', which does not exist; columns are key, x"),
        ({"recipe": "images"}, r"recipe 'tests.trainer.recipes:images' cannot be imported"),
        ({"recipe": "mixed"}, r"the recipe names the column 'image', which does not exist"),
        ({"shapes": {"y": [2, 4]}}, r"shapes names the column 'y', which does not exist"),
        ({"variable_length": ["y"]}, r"^variable_length names the column 'y', which does not exist"),
        ({"epoch": 3}, r"'epoch' is not a param of TrainyardEstimator; params are balance, batch_size"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(
    spark: Any, tmp_path: Path, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainyardError, match=message):
        make_estimator(tmp_path / "store", **params).fit(make_frame(spark, 10))
    assert not (tmp_path / "store").exists()


@pytest.mark.full
def test_a_cross_validator_fits_in_threads(spark: Any, tmp_path: Path) -> None:
    estimator = make_estimator(tmp_path, workers=1, recipe_params={"limit": 3})
    grid = ParamGridBuilder().addGrid(estimator.epochs, [1, 3]).build()
    evaluator = MulticlassClassificationEvaluator(predictionCol="prediction", metricName="accuracy")
    as_double = SQLTransformer(statement="SELECT *, CAST(class_ AS double) AS prediction FROM __THIS__")
    validator = CrossValidator(
        estimator=Pipeline(stages=[estimator, as_double]), estimatorParamMaps=grid, evaluator=evaluator, numFolds=2,
        parallelism=2,
    )  # fmt: skip
    assert max(validator.fit(make_frame(spark, 120)).avgMetrics) > 0.8


def test_the_label_may_be_one_of_the_features(spark: Any, tmp_path: Path) -> None:
    recipe = "tests.etl.recipes:autoencoder"
    estimator = TrainyardEstimator(recipe=recipe, store=str(tmp_path), epochs=1, batch_size=10)
    model = estimator.fit(make_frame(spark, 40))
    assert [column.name for column in manifest.read_current(model.artifact.dataset).columns] == ["x"]


def test_the_extra_columns_of_a_recipe_are_trained_on_and_not_needed_for_predictions(
    spark: Any, tmp_path: Path
) -> None:
    frame = make_frame(spark, 40).withColumn("weight", F.lit(0.5))
    estimator = TrainyardEstimator(recipe="tests.etl.recipes:weighing", store=str(tmp_path), epochs=1, batch_size=10)
    assert estimator.fit(frame).transform(make_frame(spark, 5)).count() == 5


def test_the_options_of_a_strategy_are_saved(tmp_path: Path) -> None:
    make_estimator(tmp_path, strategy=Averaging(frequency=3)).save(str(tmp_path / "saved"))
    assert TrainyardEstimator.load(str(tmp_path / "saved")).getStrategy()["frequency"] == 3


def test_a_recipe_of_the_notebook_itself_is_refused(spark: Any, tmp_path: Path) -> None:
    estimator = TrainyardEstimator(recipe="__main__:network", store=str(tmp_path))
    with pytest.raises(TrainyardError, match="recipe='__main__:network' is in a notebook"):
        estimator.fit(make_frame(spark, 10))


def test_a_missing_param_is_named(spark: Any) -> None:
    with pytest.raises(TrainyardError, match=r"TrainyardEstimator needs store=: The directory for datasets and models"):
        TrainyardEstimator(recipe=f"{RECIPES}:linear").fit(make_frame(spark, 10))


@pytest.mark.parametrize("label", ["2.5d", "1e19d"])
def test_a_class_that_is_not_an_integer_is_refused(spark: Any, tmp_path: Path, label: str) -> None:
    rows = make_frame(spark, 10).selectExpr("x", f"{label} as label")
    with pytest.raises(
        TrainyardError, match=r"^column 'label' is the number of a class but is not an integer: \w.*row"
    ):
        make_estimator(tmp_path).fit(rows)


def test_a_row_without_a_vector_is_refused(spark: Any, tmp_path: Path) -> None:
    schema = StructType([StructField("x", VectorUDT()), StructField("label", LongType())])
    frame = spark.createDataFrame([(Vectors.dense([1.0] * 8), 1), (None, 1)], schema)
    with pytest.raises(TrainyardError, match=r"^column 'x' has a row without a vector; drop it"):
        make_estimator(tmp_path).fit(frame)


def test_an_output_that_is_already_a_column_is_refused(spark: Any, fitted: TrainyardModel) -> None:
    with pytest.raises(TrainyardError, match="column 'class_' is both a key and an output of the model; rename it"):
        fitted.transform(make_frame(spark, 10).withColumnRenamed("key", "class_"))
