"""Categories and labels are fitted on the training rows, and applied the same in export, evaluation and prediction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import pytest
from sklearn.preprocessing import LabelEncoder, OrdinalEncoder

from tests.etl.fitting.data import KINDS, SCHEMA, Row, make_rows, make_spec, run, write_source
from trainyard.errors import TrainyardError
from trainyard.etl import DatasetScan, evaluate, features, predict
from trainyard.schemas.datasets import manifest
from trainyard.schemas.results import DatasetResult
from trainyard.schemas.specs.source import Source
from trainyard.trainer import fit, load_model

pytestmark = pytest.mark.spark
CATEGORIES = ["city", "store", "open"]


@dataclass
class Exported:
    """A dataset and a model that is trained on it."""

    rows: list[Row]
    source: Any
    dataset: str
    result: DatasetResult
    model: str

    def values(self, name: str) -> list[Any]:
        return [row[["key", *CATEGORIES, "kind"].index(name)] for row in self.rows]


@pytest.fixture(scope="module")
def exported(spark, tmp_path_factory):
    directory = tmp_path_factory.mktemp("categories")
    rows = make_rows()
    source = write_source(spark, directory / "source", rows)
    spec = make_spec(directory, source, categories=CATEGORIES, label="kind")
    result = run(spark, spec)
    fit("tests.etl.fitting.recipes:kinds", dataset=spec.dataset, model=(model := str(directory / "model")), epochs=3)
    return Exported(rows, spark.read.parquet(source.path), spec.dataset, result, model)


@pytest.fixture(scope="module")
def stored(spark, exported):
    return spark.read.format("trainyard").load(exported.dataset)


def as_text(value: Any) -> str | None:
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def test_indices_are_those_of_encoders_of_scikit_learn_fitted_on_the_training_rows(exported, stored):
    found = {row.key: row for row in stored.collect()}
    assert len(found) == len(exported.rows)
    is_training = [row[-1] == "train" for row in exported.rows]
    for name in CATEGORIES:
        texts = [as_text(value) for value in exported.values(name)]
        counts = Counter(t for t, trains in zip(texts, is_training, strict=True) if t is not None and trains)
        order = sorted(counts, key=lambda text: (-counts[text], text.encode()))
        encoder = OrdinalEncoder(categories=[order], handle_unknown="use_encoded_value", unknown_value=-1)
        encoder.fit([[text] for text in order])
        expected = encoder.transform([["\0" if text is None else text] for text in texts])[:, 0] + 1
        assert [found[key][name] for key in exported.values("key")] == expected.tolist(), name
        assert exported.result.unseen[name] == sum(expected == 0) / len(expected)
    kinds = exported.values("kind")
    encoder = LabelEncoder().fit([kind for kind, trains in zip(kinds, is_training, strict=True) if trains])
    assert [found[key].kind for key in exported.values("key")] == encoder.transform(kinds).tolist()


def test_a_value_of_the_test_rows_alone_is_unseen_and_one_that_occurs_once_is_not(exported, stored):
    cities = {exported.rows[row.key][1]: row.city for row in stored.collect()}
    assert cities["Bremen"] == cities[None] == 0
    assert cities["Once"] == max(cities.values())


def test_predictions_of_values_and_of_indices_are_the_same_and_name_classes(spark, exported, stored):
    of_values = {row.key: row for row in predict(exported.source, exported.model, ["key", "city"]).collect()}
    scan = DatasetScan(spark, exported.dataset)
    for indices in (stored, scan):
        of_indices = {row.key: row for row in predict(indices, exported.model, ["key"]).collect()}
        assert {k: (r.kind, r.score) for k, r in of_values.items()} == {
            k: (r.kind, r.score) for k, r in of_indices.items()
        }
    assert {row.kind for row in of_values.values()} <= set(KINDS)
    assert [of_values[key].city for key in exported.values("key")] == exported.values("city")


def test_a_model_that_is_loaded_alone_has_its_values(exported):
    model = load_model(exported.model)
    columns = {name: exported.values(name) for name in CATEGORIES}
    of_values = {row.key: row.kind for row in predict(exported.source, exported.model, ["key"]).collect()}
    predicted = model.predict(model.encode(columns))["kind"]
    assert predicted.tolist() == [of_values[key] for key in exported.values("key")]
    indices = model.encode({"store": columns["store"], "open": columns["open"]})
    assert model.predict({"city": columns["city"]} | indices)["kind"].tolist() == predicted.tolist()


def test_evaluations_of_values_and_of_indices_are_the_same_and_have_names(exported, stored):
    options: Any = {"metrics": ["accuracy", "confusion_matrix", "auroc"], "slices": ["city"], "examples": 3}
    by_value, by_index = (evaluate(rows, exported.model, **options) for rows in (exported.source, stored))
    assert by_value.model.metrics["confusion_matrix"] == by_index.model.metrics["confusion_matrix"]
    assert by_value.classes == by_index.classes == tuple(sorted(KINDS))
    assert {name for name in by_index.curves if name.startswith("ROC")} == {f"ROC of {kind}" for kind in KINDS}
    cities = exported.values("city")
    for result in (by_value, by_index):
        rows_of = {part.value: part.rows for part in result.model.slices}
        assert rows_of["Berlin"] == cities.count("Berlin")
        assert rows_of["unseen"] == cities.count(None) + cities.count("Bremen")
        assert rows_of['"unseen"'] == cities.count("unseen")
        for example in result.examples:
            assert example.label == exported.rows[example.row["key"]][4]
            assert example.prediction["kind"] in KINDS


def test_features_of_values_and_of_indices_are_the_same(exported, stored):
    one, other = (
        {row.key: row.features for row in features(rows.select("key", *CATEGORIES), exported.model, "output").collect()}
        for rows in (exported.source, stored)
    )
    assert one == other


def test_features_are_in_the_order_of_the_rows(exported):
    rows = exported.source.coalesce(1).sortWithinPartitions("key").select("key", *CATEGORIES)
    keys = [row.key for row in features(rows, exported.model, "output").collect()]
    assert keys == sorted(exported.values("key"))


def test_the_model_card_and_the_dataset_say_how_many_values_there_are(exported):
    sizes = manifest.read_current(exported.dataset).fitted.sizes
    assert sizes["kind"] == len(KINDS) and sizes["open"] == 3
    assert load_model(exported.model).artifact.recipe_params == {"categories": sizes}


def test_a_label_that_is_no_class_ends_an_evaluation_with_its_value(spark, exported):
    rows = exported.source.selectExpr("city", "store", "open", "if(key = 3, 'pear', kind) as kind")
    with pytest.raises(Exception, match="the label 'kind' has the value 'pear', which no row of the split 'train' has"):
        evaluate(rows, exported.model, "accuracy")


def test_numbers_in_place_of_names_are_not_taken_for_either(exported):
    rows = exported.source.selectExpr("key", "key as city", "store", "open")
    with pytest.raises(TrainyardError, match=r"have bigint in column 'city'.*categories of type string"):
        predict(rows, exported.model)


def test_the_order_of_rows_does_not_depend_on_that_of_the_source(spark, exported, tmp_path):
    sources = [write_source(spark, tmp_path / "one", exported.rows), tmp_path / "other"]
    spark.createDataFrame(exported.rows[::-1], SCHEMA).coalesce(1).write.parquet(str(sources[1]))
    specs = [
        make_spec(tmp_path / name, source, categories=CATEGORIES, label="kind")
        for name, source in (("a", sources[0]), ("b", Source(format="parquet", path=str(sources[1]))))
    ]
    assert len({run(spark, spec).content_hash for spec in specs}) == 1
