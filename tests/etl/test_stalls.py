"""Stages whose Python functions do not return. (Here, because the other tests that start Spark are.)"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import functions as F

from trainyard import stalls
from trainyard.errors import TrainyardError
from trainyard.stalls import StallDetector, get_minutes


def wait_while(file: str) -> Callable[[Any], Any]:
    def identity(value: Any) -> Any:
        while Path(file).exists():
            time.sleep(0.05)
        return value

    return identity


def wait_for_end(spark: Any) -> None:
    """Wait until no task runs, also none of a stage that was canceled."""
    end = time.monotonic() + 200
    while spark.sparkContext._jsc.sc().statusStore().activeStages().size():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_minutes_that_are_no_number_are_refused(text: str) -> None:
    with pytest.raises(TrainyardError, match=f"^conf: spark.trainyard.hangMinutes='{text}' is no number of minutes"):
        get_minutes({"spark.trainyard.hangMinutes": text})
    assert get_minutes({"spark.trainyard.hangMinutes": "1.5"}) == 1.5 and get_minutes({}) == 60


@pytest.mark.spark
@pytest.mark.parametrize("arrow", [True, False])
def test_a_stage_that_waits_for_a_function_is_ended_and_named(spark: Any, tmp_path: Path, arrow: bool) -> None:
    (tmp_path / "blocked").touch()
    function = F.udf(wait_while(str(tmp_path / "blocked")), "long", useArrow=arrow)
    with (
        pytest.raises(Py4JJavaError, match="does not return"),
        StallDetector(spark.sparkContext, 0.02) as detector,
    ):
        try:
            spark.range(100).select(function("id")).collect()
        finally:
            (tmp_path / "blocked").unlink()
            wait_for_end(spark)
    assert detector.stall and "test_stalls.py" in detector.stall and "2 of 2 tasks running" in detector.stall
    assert "write conf={'spark.trainyard.hangMinutes': MINUTES}" in detector.stall


@pytest.mark.full
@pytest.mark.spark
def test_a_stage_that_computes_in_java_is_not_ended(spark: Any) -> None:
    with StallDetector(spark.sparkContext, 0.001) as detector:
        count = spark.range(4_000_000).select(F.sum(F.hash(F.sha2(F.col("id").cast("string"), 512)))).collect()
    assert count and detector.stall is None


@pytest.mark.spark
def test_rows_that_move_are_progress(spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tasks that end one after the other, each faster than the limit."""

    def slow(value: Any) -> Any:
        time.sleep(0.2)
        return value

    monkeypatch.setattr(stalls, "INTERVAL_SECONDS", 0.1)
    with StallDetector(spark.sparkContext, 0.05) as detector:
        spark.range(0, 40, 1, 40).select(F.udf(slow, "long")("id")).collect()
    assert detector.stall is None
