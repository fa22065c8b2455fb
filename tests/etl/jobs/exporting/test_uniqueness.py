"""Rows that are expected to be unique and are not are counted by Spark, in as many partitions as there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as F

from tests.etl.models import make_log
from trainyard.errors import TrainyardError
from trainyard.etl.jobs.exporting import export
from trainyard.etl.jobs.exporting.uniqueness import check_unique, find_duplicates
from trainyard.schemas.datasets import manifest
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.source import Expectation, RowCount, Source
from trainyard.schemas.specs.task_key import TaskKey

pytestmark = pytest.mark.spark


def make_rows(spark: Any) -> Any:
    """Return 300 rows in 4 partitions: 7 users have 2 visits, one has 3, on other days and of other partitions."""
    frame = spark.range(0, 291, 1, 4).select(F.concat(F.lit("u"), "id").alias("user"), F.lit(1).alias("day"))
    again = spark.range(0, 8, 1, 2).select(F.concat(F.lit("u"), F.col("id") * 40).alias("user"), F.lit(2).alias("day"))
    third = spark.createDataFrame([("u40", 2)], "user string, day int")
    return frame.union(again).union(third)


def test_values_that_several_rows_have_are_counted_with_those_of_the_most_rows(spark: Any) -> None:
    found = find_duplicates(make_rows(spark), ["user"])
    first = "8 values in 17 rows: 'u40' (3 rows), 'u0' (2 rows), 'u120' (2 rows), 'u160' (2 rows), 'u200' (2 rows)"
    assert found == first


def test_columns_together_may_be_a_key_of_fewer_duplicates(spark: Any) -> None:
    assert find_duplicates(make_rows(spark), ["user", "day"]) == "1 value in 2 rows: ('u40', 2) (2 rows)"


def test_rows_with_a_null_do_not_count_and_names_may_have_dots(spark: Any) -> None:
    frame = spark.createDataFrame([(None, 1), (None, 1), ("a", None), ("a", None), ("b", 1)], "`a.b` string, c int")
    assert find_duplicates(frame, ["a.b", "c"]) == ""
    assert find_duplicates(frame, ["a.b"]) == "1 value in 2 rows: 'a' (2 rows)"


def test_nan_is_one_value_and_so_are_the_zeros_of_both_signs(spark: Any) -> None:
    nan = float("nan")
    rows = [(nan, 1), (nan, 1), (nan, 2), (nan, None), (0.0, 1), (-0.0, 1), (1.5, 1), (None, 1), (None, 1)]
    frame = spark.createDataFrame(rows, "score double, day int").repartition(3)
    assert find_duplicates(frame, ["score"]) == "2 values in 6 rows: nan (4 rows), 0.0 (2 rows)"
    assert find_duplicates(frame, ["score", "day"]) == "2 values in 4 rows: (0.0, 1) (2 rows), (nan, 1) (2 rows)"


def test_a_key_of_a_column_that_is_missing_is_refused(spark: Any) -> None:
    expected = {"user": Expectation(unique_with=("hour",))}
    with pytest.raises(TrainyardError, match="expect names the column 'hour', which does not exist; columns are user"):
        check_unique("d", make_rows(spark), expected)


@pytest.fixture
def spec(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExportSpec:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    make_rows(spark).write.parquet(str(tmp_path / "source"))
    return ExportSpec(
        task_key=TaskKey(dag_id="d", run_id="r", task_id="t", directory=str(tmp_path / "run")),
        prepare="prepares:rows", source=Source(format="parquet", path=str(tmp_path / "source")),
        dataset=str(tmp_path / "dataset"), split_by="user",
    )  # fmt: skip


def test_an_export_fails_before_it_writes_or_warns(spark: Any, spec: ExportSpec) -> None:
    failing = spec.model_copy(update={"expect": {"user": Expectation(unique_with=("day",))}})
    with pytest.raises(TrainyardError) as failed:
        export.run(spark, failing, make_log(spec))
    assert "split  column     expected  found\nall    user, day  unique    1 value in 2 rows: ('u40', 2)" in str(
        failed.value
    )
    assert not Path(spec.dataset).exists()
    expected = {"user": Expectation(unique=True, severity="warn"), "day": Expectation(min=1)}
    rows = RowCount(max=299, severity="warn")
    result = export.run(spark, spec.model_copy(update={"expect": expected, "expect_rows": rows}), make_log(spec))
    assert result.rows == 300
    assert result.warnings == (
        "column user: expected unique, found 8 values in 17 rows: 'u40' (3 rows), 'u0' (2 rows), 'u120' (2 rows), "
        "'u160' (2 rows), 'u200' (2 rows)",
        "all rows: expected max 299 rows, found 300",
    )
    assert manifest.read_current(spec.dataset).partitions[""].provenance.warnings == result.warnings
