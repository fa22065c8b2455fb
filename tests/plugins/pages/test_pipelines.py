"""What needs attention in a run. Pure functions."""

from __future__ import annotations

import pytest

from tests.plugins.report import example
from trainyard.pages import pipelines
from trainyard.pages.runs import Run
from trainyard.report.stages import build_stages

RECORDS = example.build_records("file:///runs/digits/r1")
WARNED = example.change_record(RECORDS[0], {"warnings": ["odd"]})
FAILED = example.change_record(RECORDS[3], status="failed", error="no tea\nat line 7")


@pytest.mark.parametrize(
    ("records", "state", "error", "expected"),
    [
        (RECORDS, "success", "", []),
        ([WARNED, FAILED], "failed", "", [("failed", "predict: no tea"), ("warning", "export: odd")]),
        (RECORDS[:1], "failed", "", [("failed", pipelines.ELSEWHERE)]),
        ([], "success", "is not JSON", [("failed", "is not JSON")]),
    ],
)
def test_failures_come_before_warnings(
    records: list[example.RunRecord], state: str, error: str, expected: list[tuple[str, str]]
) -> None:
    run = Run("digits", "r1", "file:///runs/digits/r1", state)
    found = pipelines.find_attention("trainyard_default", run, build_stages(records), error)
    assert [(item.state, item.text) for item in found] == expected
