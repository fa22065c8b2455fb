"""Shards are plain Arrow files: other libraries read the rows that Spark wrote."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def dataset(spark, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("interchange") / "d"
    rows = spark.range(100, numPartitions=3).selectExpr(
        "id", "array(float(id), float(2 * id)) as x", "concat('k', id) as key",
        "if(id < 20, 'test', 'train') as split",
    )  # fmt: skip
    rows.write.format("trainyard").mode("append").option("splitColumn", "split").save(str(path))
    return path


@pytest.fixture(scope="module")
def train(dataset) -> list[str]:
    """The files of the split "train", from the manifest."""
    manifest = json.loads((dataset / "manifest.json").read_text())
    return [str(dataset / path) for path in manifest["splits"]["train"]["shards"]["path"]]


def test_pyarrow_reads_a_split_as_a_dataset(train):
    table = pa.dataset.dataset(train, format="arrow").to_table()
    assert sorted(table["id"].to_pylist()) == list(range(20, 100))
    images = table["x"].combine_chunks().to_numpy_ndarray()
    assert images.shape == (80, 2) and (images[:, 1] == 2 * images[:, 0]).all()


def test_pandas_reads_a_shard(train):
    frame = pd.concat([pd.read_feather(file) for file in train])
    assert sorted(frame["id"]) == list(range(20, 100))
    assert (np.stack(frame["x"].to_numpy())[:, 0] == frame["id"]).all()


def test_duckdb_queries_a_split(train):
    rows = pa.dataset.dataset(train, format="arrow")  # the query refers to it by its name
    result = duckdb.sql("select count(*), sum(id), max(key) from rows where id >= 50").fetchall()
    assert rows.count_rows() == 80 and result == [(50, sum(range(50, 100)), "k99")]


def test_hugging_faces_datasets_reads_a_split_as_a_table(train):
    rows = pa.dataset.dataset(train, format="arrow")
    plain = {f.name: pa.dataset.field(f.name).cast(getattr(f.type, "storage_type", f.type)) for f in rows.schema}
    split = datasets.Dataset(rows.to_table(plain)).with_format("numpy")
    assert sorted(split["id"][:]) == list(range(20, 100))
    assert split[:]["x"].shape == (80, 2) and (split[:]["x"][:, 0] == split[:]["id"]).all()
