"""What is expected of columns that become indices holds for their values, in each split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.etl.fitting.data import SCHEMA, make_spec, run
from trainyard.errors import TrainyardError
from trainyard.etl.jobs.exporting.value_quality import check_values, count_values
from trainyard.schemas.datasets.manifest import Statistics
from trainyard.schemas.specs.source import Expectation, Source

pytestmark = pytest.mark.spark

ROWS = [
    (i, None if i % 5 == 0 else "AB"[i % 2], i % 4, True, "ab"[i % 2], "train" if i < 60 else "test") for i in range(80)
]
"""Of each split a fifth has no city, in several partitions."""


@pytest.fixture
def rows(spark: Any) -> Any:
    return spark.createDataFrame(ROWS, SCHEMA).repartition(4)


@pytest.mark.parametrize(
    ("column", "expected", "row"),
    [
        ("city", {"nulls": 0.1}, "train  city    nulls at most 0.1  0.2 (12 of 60)"),
        ("city", {"values": ["A"]}, "test   city    one of A  B (8 rows)"),
        ("city", {"min": 0}, "train  city    min 0     a column without numbers"),
        ("kind", {"values": ["a", "c"], "rows_per_value": 10}, "train  kind    one of a, c     b (30 rows)"),
        ("kind", {"values": ["a", "c"], "rows_per_value": 10}, "test   kind    10 rows of 'c'  0"),
        ("store", {"max": 2}, "train  store   max 2     3"),
        ("store", {"values": [0, 1, 2]}, "train  store   one of 0, 1, 2  3 (15 rows)"),
    ],
)
def test_values_and_nulls_are_checked_before_they_are_indices(
    rows: Any, column: str, expected: dict[str, Any], row: str
) -> None:
    with pytest.raises(TrainyardError) as error:
        check_values("d", rows, "split", {column: Expectation(**expected)})
    assert row in str(error.value)


def test_an_export_fails_before_it_writes_or_warns(
    spark: Any, rows: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    rows.write.parquet(str(tmp_path / "source"))
    source = Source(format="parquet", path=str(tmp_path / "source"))
    options = {"categories": ["city"], "label": "kind"}
    with pytest.raises(
        TrainyardError, match=r"split test, column city: expected nulls at most 0\.1, found 0\.2 .* 1 more"
    ):
        run(spark, make_spec(tmp_path, source, expect={"city": {"nulls": 0.1}}, **options))
    assert not (tmp_path / "dataset").exists()
    expect = {
        "city": {"nulls": 0.2, "values": ["A", "B"]},
        "kind": {"values": ["a", "b"], "rows_per_value": 11, "severity": "warn"},
    }
    result = run(spark, make_spec(tmp_path, source, expect=expect, **options))
    assert result.warnings == (
        "split test, column kind: expected 11 rows of 'a', found 10",
        "split test, column kind: expected 11 rows of 'b', found 10",
    )


def test_more_than_a_thousand_values_and_arrays_have_nulls_alone(spark: Any) -> None:
    rows = spark.range(0, 1200, 1, 3).selectExpr(
        "'train' as split", "if(id < 100, null, id) as id", "if(id < 9, null, array('a', 'b')) as words"
    )
    assert count_values(rows, "split", ["id", "words"], ["id", "words"]) == {
        "train": {
            "id": Statistics(count=1100, nulls=100, min=(100.0,), max=(1199.0,)),
            "words": Statistics(count=1191, nulls=9),
        }
    }
