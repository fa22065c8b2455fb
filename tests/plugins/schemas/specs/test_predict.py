"""Predictions are not written where their source is."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.source import Source, lies_below
from trainyard.schemas.specs.task_key import TaskKey

TASK = TaskKey(dag_id="d", run_id="r", task_id="predict", directory="file:///s/runs/d/r")


def predict(source: str, output: str, output_format: str = "parquet") -> PredictSpec:
    return PredictSpec(
        task_key=TASK, model="m", source=Source(format="parquet", path=source), keys=("id",), output=output,
        output_format=output_format,
    )  # fmt: skip


@pytest.mark.parametrize("character", list("[]{}*?\\"))
def test_an_output_that_spark_would_read_as_a_pattern_is_refused_before_it_is_written(character: str) -> None:
    output = f"predictions/a{character}b"
    message = f"output\n.*Spark reads {re.escape(repr(character))} as part of a pattern; use a path without"
    with pytest.raises(ValidationError, match=message):
        predict("flowers", output)
    assert predict("flowers", output, "trainyard").output == output


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("flowers", "flowers"),
        ("flowers/", "flowers"),
        ("/s/flowers", "file:///s//flowers"),
        ("hdfs:///s/flowers", "hdfs://namenode:8020/s/flowers"),
        ("/s/flowers/day=1", "/s/flowers"),
        ("/s/flowers", "/s/flowers/predictions"),
        ("/s/flowers/*.parquet", "/s/flowers"),
        ("/s/*", "/s/predictions"),
        ("/s/flowers/[x]", "/s/flowers/[x]/predictions"),
    ],
)
@pytest.mark.parametrize("output_format", ["parquet", "trainyard"])
def test_an_output_that_shares_files_with_the_source_is_refused(source: str, output: str, output_format: str) -> None:
    message = f"it is the source {source!r}, contains it or lies inside it; write another output"
    with pytest.raises(ValidationError, match=re.escape(message)) as refused:
        predict(source, output, output_format)
    assert refused.value.errors()[0]["loc"] == ("output",)


def test_a_dataset_inside_the_source_of_its_export_is_refused() -> None:
    """The next export read the dataset, and the weights of models beside it, as further rows."""
    shapes, batches = Source(format="binaryFile", path="shapes"), Source(format="trainyard", path="shapes")
    with pytest.raises(ValidationError, match=r"it is the source 'shapes', contains it .* write another dataset"):
        ExportSpec(task_key=TASK, prepare="a:b", source=shapes, dataset="shapes/dataset")
    ExportSpec(task_key=TASK, prepare="a:b", source=batches, dataset="shapes/dataset")


@pytest.mark.parametrize(
    ("output", "source", "is_below"),
    [
        ("/s/shapes/model", "/s/shapes", True),
        ("/s/shapes/model", "/s/*", True),
        ("/s/predictions", "/s/predictions", False),
        ("/s/predictions", "/s/predictions/day=1", False),
        ("/s/model", "/s/shapes", False),
    ],
)
def test_a_source_may_be_an_output_but_contains_none(output: str, source: str, is_below: bool) -> None:
    assert lies_below(output, source) == is_below


@pytest.mark.parametrize(
    ("source", "output", "output_format"),
    [
        ("/s/flowers", "/s/flowers-predicted", "parquet"),
        ("/s/flowers", "/s/predictions", "parquet"),
        ("/s/flowers", "hdfs:///s/flowers", "parquet"),
        ("hdfs://one/s/flowers", "hdfs://other/s/flowers", "parquet"),
        ("s3://bucket/flowers", "s3://other/flowers", "trainyard"),
        ("/s/*/day=1", "/s/predictions", "parquet"),
        ("scores", "scores", "table"),
    ],
)
def test_an_output_beside_the_source_is_accepted(source: str, output: str, output_format: str) -> None:
    assert predict(source, output, output_format).output == output


def test_a_source_without_a_path_shares_no_files() -> None:
    jdbc = Source(format="jdbc", options={"url": "jdbc:x", "dbtable": "t"})
    assert PredictSpec(task_key=TASK, model="m", source=jdbc, keys=("id",), output="out").source.path is None
