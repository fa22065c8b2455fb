"""The stored resource usage of an application: what it allocated, and for how long it computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plugins.results import output
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.usage import resource_usage
from trainyard.usage.resource_usage import ResourceUsage


def task_key(directory: Path) -> TaskKey:
    return TaskKey(dag_id="digits", run_id="r1", task_id="train", directory=directory.as_uri())


def record(directory: Path, job: str, **fields: Any) -> RunRecord:
    return RunRecord(
        task_key=task_key(directory), job=job, application="a1", started_at=1.0, seconds=9.0, status="succeeded",
        output=output(job, **fields),
    )  # fmt: skip


def usage(directory: Path, application: str = "a1", busy_seconds: float = 1.0) -> ResourceUsage:
    return ResourceUsage(
        task_key=task_key(directory), application=application, queue="train", started_at=1.0, seconds=2.0,
        busy_seconds=busy_seconds, core_seconds=4.0,
    )  # fmt: skip


def span(name: str, begin: float, end: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": begin * 1e6, "dur": (end - begin) * 1e6}


def test_a_training_is_busy_in_the_phases_in_which_its_workers_compute(tmp_path: Path) -> None:
    idle = {"set up": 5.0, "data wait": 2.0, "wait for communication": 3.0, "wait for workers": 4.0}
    phases = idle | {"forward": 10.0, "backward": 20.0, "validate": 1.0}
    assert resource_usage.busy_seconds(record(tmp_path, "train", seconds=phases), []) == pytest.approx(31)


def test_another_job_is_busy_during_the_spans_of_its_driver_except_those_of_its_start(tmp_path: Path) -> None:
    events = [
        span("start Spark", 0, 4), span("read source", 4, 6), span("prepare", 5, 7), span("write dataset", 9, 10),
        {"ph": "M", "name": "process_name", "ts": 0},
    ]  # fmt: skip
    assert resource_usage.busy_seconds(record(tmp_path, "export"), events) == pytest.approx(4)


def test_the_usage_of_every_application_is_written_once(tmp_path: Path) -> None:
    for one in (usage(tmp_path, "a1"), usage(tmp_path, "a2"), usage(tmp_path, "a1", busy_seconds=0.0)):
        resource_usage.save(one, print)
    stored = resource_usage.read_run(tmp_path.as_uri())
    assert [(one.application, one.busy_seconds) for one in stored] == [("a1", 1.0), ("a2", 1.0)]


def test_a_write_error_is_logged_and_not_raised(tmp_path: Path) -> None:
    (tmp_path / "usage").write_text("a file in place of the folder")
    lines: list[str] = []
    resource_usage.save(usage(tmp_path), lines.append)
    assert "The resource usage of a1 could not be written" in lines[0]
