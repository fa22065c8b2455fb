"""Labels that a row may be without are null in the source, in the dataset and in evaluations; several have classes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, mean_absolute_error

from tests.etl.models import make_log, make_task_key
from trainyard.errors import TrainyardError
from trainyard.etl import DatasetScan, evaluate, predict
from trainyard.etl.jobs.exporting import export
from trainyard.schemas.datasets import manifest
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Source
from trainyard.trainer import fit, load_model
from trainyard.trainer.data.dataset import Dataset

pytestmark = pytest.mark.spark
PENGUINS = Path(__file__).parents[3] / "dags" / "penguins" / "penguins.csv"


def make_spec(directory: Path, **fields: Any) -> ExportSpec:
    options = {"header": "true", "inferSchema": "true", "nullValue": "NA"}
    given = {"prepare": "penguins.prepare:measured", "label": ["species", "sex"], "nullable": ["sex"], "shards": 3}
    return ExportSpec(
        task_key=make_task_key(directory), source=Source(format="csv", path=PENGUINS.as_uri(), options=options),
        dataset=str(directory / "dataset"), **(given | fields),
    )  # fmt: skip


@dataclass
class Trained:
    dataset: str
    model: str
    metrics: dict[str, float]


@pytest.fixture(scope="module")
def trained(spark, tmp_path_factory):
    directory = tmp_path_factory.mktemp("penguins")
    spec = make_spec(directory)
    export.run(spark, spec, make_log(spec))
    model = str(directory / "model")
    fitted = fit("penguins.recipe:heads", dataset=spec.dataset, model=model, epochs=60, batch_size=32)
    return Trained(spec.dataset, model, fitted.metrics)


def test_nulls_of_labels_stay_null_and_are_no_class_of_a_batch(spark, trained):
    stored = spark.read.format("trainyard").load(trained.dataset)
    source = pd.read_csv(PENGUINS).dropna(subset=["flipper_length_mm"])
    assert stored.where("sex IS NULL").count() == source.sex.isna().sum() == 9
    split = manifest.read_current(trained.dataset).split("train")
    assert split.statistics["sex"].values == {
        "0": split.statistics["sex"].values["0"],
        "1": split.statistics["sex"].values["1"],
    }
    batch = next(iter(Dataset(trained.dataset, columns=["sex"], batch_size=split.rows)))
    assert (batch["sex"] == -100).sum() == split.statistics["sex"].nulls > 0


def test_penguins_are_known_by_their_sizes(spark, trained):
    scan = DatasetScan(spark, trained.dataset, {"split": "test"})
    names = ["species/accuracy", "species/confusion_matrix", "sex/accuracy", "mass/mae"]
    result = evaluate(scan, trained.model, names, slices=["sex"])
    assert result.head_classes == {"species": ("Adelie", "Chinstrap", "Gentoo"), "sex": ("female", "male")}
    rows = spark.read.format("trainyard").option("split", "test").load(trained.dataset).toPandas()
    predicted = load_model(trained.model).predict({"sizes": np.stack(rows.sizes)}, names=False)
    known = rows.sex.notna()
    found = result.model.metrics
    assert found["species/accuracy"] == pytest.approx(accuracy_score(rows.species, predicted["species_class"]))
    assert found["species/confusion_matrix"] == confusion_matrix(rows.species, predicted["species_class"]).tolist()
    assert found["sex/accuracy"] == pytest.approx(accuracy_score(rows.sex[known], predicted["sex_class"][known]))
    assert found["mass/mae"] == pytest.approx(mean_absolute_error(rows.body_mass_kg, predicted["mass_prediction"]))
    assert {part.value for part in result.model.slices} >= {"female", "male"}
    assert found["species/accuracy"] > 0.9 and found["sex/accuracy"] > 0.75 and found["mass/mae"] < 0.4


def test_predictions_have_the_names_of_the_classes_of_each_head(spark, trained):
    rows = spark.createDataFrame([([39.1, 18.7, 181.0],), ([50.0, 15.2, 218.0],)], "sizes array<float>")
    first, second = predict(rows, trained.model).collect()
    assert (first.species_class, second.species_class) == ("Adelie", "Gentoo")
    assert {first.sex_class, second.sex_class} <= {"female", "male"}
    assert second.mass_prediction > first.mass_prediction


def test_rows_to_evaluate_may_have_the_values_of_labels_and_null(spark, trained):
    sizes = [[39.1, 18.7, 181.0], [50.0, 15.2, 218.0], [46.0, 15.0, 215.0]]
    rows = list(zip(sizes, ["Adelie", "Gentoo", "Gentoo"], ["male", None, "female"], [3.75, 5.7, None], strict=True))
    frame = spark.createDataFrame(rows[:2], "sizes array<float>, species string, sex string, body_mass_kg float")
    result = evaluate(frame, trained.model, ["species/accuracy", "sex/accuracy"])
    assert result.rows == 2 and result.model.metrics["species/accuracy"] == 1
    without = spark.createDataFrame(rows, frame.schema)
    with pytest.raises(Exception, match="column 'body_mass_kg' has nulls"):
        evaluate(without, trained.model, ["mass/mae"])


def test_a_null_of_a_label_that_is_not_nullable_is_refused(spark, tmp_path):
    spec = make_spec(tmp_path, nullable=[])
    with pytest.raises(TrainyardError, match="the label 'sex' has the value None"):
        export.run(spark, spec, make_log(spec))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"nullable": ["sex", "mass"]}, "nullable names the column 'mass', which does not exist"),
        ({"nullable": ["sex", "sizes"]}, "nullable names the column 'sizes', which is no column of single numbers"),
    ],
)
def test_columns_that_cannot_be_labels_are_not_nullable(spark, tmp_path, fields, message):
    with pytest.raises(TrainyardError, match=message):
        export.run(spark, make_spec(tmp_path, **fields), make_log(make_spec(tmp_path)))


def test_numbers_that_are_nullable_are_null_in_the_dataset_and_nan_in_a_batch(spark, tmp_path):
    frame = spark.createDataFrame([(1.5, 7), (None, None), (2.5, 9)], "size double, count int").repartition(1)
    uri = str(tmp_path / "dataset")
    frame.write.format("trainyard").mode("overwrite").option("nullable", "size,count").save(uri)
    statistics = manifest.read_current(uri).split("train").statistics
    assert [statistics["size"].nulls, *statistics["size"].mean] == [1, 2.0]
    batch = next(iter(Dataset(uri, batch_size=3)))
    assert sorted(batch["count"].tolist()) == [-100, 7, 9]
    assert batch["size"].isnan().sum() == 1
    assert sorted(spark.read.format("trainyard").load(uri).toPandas()["size"].dropna()) == [1.5, 2.5]


def test_an_integer_that_stands_for_null_is_refused(spark, tmp_path):
    frame = spark.createDataFrame([(1,), (-100,), (None,)], "count int")
    with pytest.raises(Exception, match=r"column 'count' is -100 in row .*, which stands for null"):
        frame.write.format("trainyard").mode("overwrite").option("nullable", "count").save(str(tmp_path / "dataset"))
