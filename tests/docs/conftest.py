"""A checkout with the datasets and models of the examples, in which the code of the documentation runs."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

_HOME = tempfile.TemporaryDirectory(prefix="trainyard-tests-", ignore_cleanup_errors=True)
os.environ.setdefault("AIRFLOW_HOME", f"{_HOME.name}/airflow")

import pytest  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402

from tests.docs.pages import ROOT, blocks  # noqa: E402
from tests.docs.reader import Reader  # noqa: E402

OURS = ("plugins", "etl", "trainer", "stack", "tests", "bench", ".venv", "Makefile", "docker-compose.yaml")


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Link this checkout, except `dags/`, which pages write to and is copied, and `.run/`."""
    folder = tmp_path_factory.mktemp("docs")
    for name in (*OURS, *(file.name for file in ROOT.glob("requirements*"))):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "dags", folder / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@pytest.fixture(scope="session")
def examples(checkout: Path, spark: Any) -> Path:
    """Add datasets of digits and penguins, a model and a table of flowers to the storage of the checkout."""
    from penguins.prepare import table
    from sklearn.datasets import load_digits, load_iris

    from trainyard.trainer.loop.fit import fit

    root = f"{checkout}/.run/storage"
    digits, iris = load_digits(), load_iris()
    images = [
        (f"{number:04d}", (pixels / 16).tolist(), int(label), "validation" if number % 10 else "train")
        for number, (pixels, label) in enumerate(zip(digits.data, digits.target, strict=True))
    ]
    flowers = [(float(row[1]), float(row[0]), int(kind)) for row, kind in zip(iris.data, iris.target, strict=True)]
    csv = spark.read.options(header="true", inferSchema="true", nullValue="NA").csv(
        str(checkout / "dags/penguins/penguins.csv")
    )
    rows = {
        "digits": spark.createDataFrame(images, "id string, image array<float>, label bigint, split string"),
        "penguins": table(spark, csv).withColumn("split", F.expr("if(penguin < 'B', 'validation', 'train')")),
    }
    shapes = {"digits": '{"image": [1, 8, 8]}', "penguins": "{}"}
    for name, frame in rows.items():
        frame.coalesce(1).write.format("trainyard").mode("append").options(
            splitColumn="split", shapes=shapes[name]
        ).save(f"{root}/{name}/dataset")
    spark.createDataFrame(flowers, "width float, length float, kind int").write.parquet(f"{root}/flowers.parquet")
    options = {"epochs": 2, "batch_size": 32, "epoch_models": True}
    fit("digits.recipe:convnet", dataset=f"{root}/digits/dataset", model=f"{root}/digits/model", **options)
    return checkout


@pytest.fixture
def read(examples: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Reader]:
    """Return a function that runs a page from top to bottom in the checkout."""

    def page(path: Path) -> Reader:
        reader = Reader(examples, path, spark)
        for block in blocks(path):
            reader.read(block)
        return reader

    storage = {"storage": (examples / ".run" / "storage").as_uri()}
    monkeypatch.chdir(examples)
    monkeypatch.syspath_prepend(str(examples / "dags"))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "local[4]"}))
    monkeypatch.setenv("AIRFLOW_CONN_TRAINYARD_DEFAULT", json.dumps({"conn_type": "trainyard", "extra": storage}))
    return page
