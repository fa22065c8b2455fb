"""The report of a run without events."""

from __future__ import annotations

from trainyard.report import render
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


def test_the_report_of_a_script_has_its_number_of_workers() -> None:
    record = RunRecord(
        task_key=TaskKey(dag_id="toy", run_id="r", task_id="script", directory="/s/runs/toy/r"), job="script",
        application="a", started_at=10.0, seconds=12.3, status="succeeded", output={"workers": 2, "restarts": 0},
    )  # fmt: skip
    assert "2 workers" in render.render_page([record], [])
