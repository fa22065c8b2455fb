"""Python functions of every kind end, over every source: in `prepare`, and in `postprocess` of predictions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.etl import python_functions
from tests.etl.models import make_frame, make_log, make_task_key, train
from tests.trainer import datasets
from trainyard.etl.jobs import predict
from trainyard.etl.jobs.exporting import export, sources
from trainyard.etl.jobs.functions import UserFunction
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.predict import PredictSpec
from trainyard.schemas.specs.source import Source

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300, func_only=True)]

ROWS = 100
PLAIN_UDF = "tests.etl.python_functions:udf"
OPTIONS = {"csv": {"header": "true", "inferSchema": "true"}}


@pytest.fixture(scope="module")
def rows(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    """The rows (id, x) in each format."""
    folder = tmp_path_factory.mktemp("sources")
    frame = spark.range(ROWS).select("id", (F.col("id") / 4).alias("x"))
    written = {}
    for name in ("parquet", "orc", "csv", "trainyard"):
        options = OPTIONS.get(name, {})
        written[name] = Source(format=name, path=str(folder / name), options=options)
        frame.write.format(name).mode("append").options(**options).save(str(folder / name))
    return written


@pytest.mark.parametrize("function", python_functions.KINDS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("name", ["parquet", "orc", "csv", "trainyard"])
def test_a_python_function_ends_over_every_source(
    spark: Any, rows: dict[str, Source], name: str, function: Callable[..., DataFrame]
) -> None:
    prepare = UserFunction.load("prepare", f"tests.etl.python_functions:{function.__name__}")
    prepared = prepare(spark, sources.read(spark, rows[name]), {})
    assert sorted(map(tuple, prepared.collect())) == [(number, number / 4 + 1) for number in range(ROWS)]


def test_an_export_ends_whose_prepare_has_a_plain_udf(spark: Any, rows: dict[str, Source], tmp_path: Path) -> None:
    spec = ExportSpec(
        task_key=make_task_key(tmp_path), source=rows["parquet"], prepare=PLAIN_UDF, dataset=str(tmp_path / "dataset")
    )
    assert export.run(spark, spec, make_log(spec)).rows == ROWS
    written = spark.read.format("trainyard").load(spec.dataset).select("id", "y")
    assert sorted(map(tuple, written.collect())) == [(number, number / 4 + 1) for number in range(ROWS)]


@pytest.mark.parametrize("output_format", ["parquet", "trainyard"])
def test_a_prediction_ends_whose_prepare_and_postprocess_have_a_plain_udf(
    spark: Any, tmp_path: Path, output_format: str
) -> None:
    blobs = datasets.blobs(ROWS, seed=7)
    make_frame(spark, blobs).write.parquet(str(tmp_path / "source"))
    spec = PredictSpec(
        task_key=make_task_key(tmp_path), model=train(tmp_path, "linear", limit=3), keys=("key",),
        source=Source(format="parquet", path=str(tmp_path / "source")), output=str(tmp_path / "out"),
        output_format=output_format, prepare="tests.etl.python_functions:upper_keys",
        postprocess="tests.etl.python_functions:upper_keys",
    )  # fmt: skip
    assert predict.run(spark, spec, make_log(spec)).rows == ROWS
    written = spark.read.format(output_format).load(spec.output)
    assert {row.key for row in written.collect()} == {f"K{number}" for number in range(ROWS)}
