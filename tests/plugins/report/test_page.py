"""The report of a run without events."""

from __future__ import annotations

from typing import Any

from trainyard.report import render
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey


def test_the_report_of_a_script_has_its_number_of_workers() -> None:
    record = RunRecord(
        task_key=TaskKey(dag_id="toy", run_id="r", task_id="script", directory="/s/runs/toy/r"), job="script",
        application="a", started_at=10.0, seconds=12.3, status="succeeded", output={"workers": 2, "restarts": 0},
    )  # fmt: skip
    assert "2 workers" in render.render_page([record], [])


def training(task: str, pid: int, loss: float) -> list[dict[str, Any]]:
    """Return the events of a training of one epoch and one worker."""
    labels = {"process_name": task, "thread_name": "worker 0"}
    at = {"pid": pid, "tid": 0, "ts": pid * 1_000_000}
    return [
        *({"ph": "M", "name": key, "args": {"name": value}} | at for key, value in labels.items()),
        {"ph": "X", "name": "forward", "dur": 500_000, "args": {}} | at,
        {"ph": "C", "name": "seconds", "args": {"forward": 0.5}} | at,
        {"ph": "C", "name": "epoch", "args": {"epoch": 1, "loss": loss, "rows_per_second": 10.0}} | at,
    ]


def test_each_of_two_trainings_has_curves_and_rows_with_its_name() -> None:
    page = render.render_page([], training("teacher", 1, 0.125) + training("student", 2, 0.875))
    sections = {text.split('"')[0]: text for text in page.split('<section class="training" id="training-')[1:]}
    assert list(sections) == ["teacher", "student"]
    for task, loss in (("teacher", "0.125"), ("student", "0.875")):
        assert f"<h2>Training {task}" in sections[task]
        assert f"training: between {loss} and {loss}" in sections[task] and "worker 0" in sections[task]


def test_the_warnings_of_a_stage_are_beside_its_figures() -> None:
    warning = "Of the checkpoints, 2 could not be written; the last error was: OSError: no space"
    record = RunRecord(
        task_key=TaskKey(dag_id="toy", run_id="r", task_id="train", directory="/s/runs/toy/r"), job="script",
        application="a", started_at=10.0, seconds=12.3, status="succeeded",
        output={"workers": 2, "warnings": [warning]},
    )  # fmt: skip
    assert warning in render.render_page([record], [])
