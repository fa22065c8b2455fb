"""What is kept of an application that has ended: how much it held, and for how long it worked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.usage import resource_usage
from trainyard.usage.resource_usage import ResourceUsage


def task_key(directory: Path) -> TaskKey:
    return TaskKey(dag_id="digits", run_id="r1", task_id="train", directory=directory.as_uri())


def record(directory: Path, output: dict[str, Any]) -> RunRecord:
    return RunRecord(
        task_key=task_key(directory), job="train", application="a1", started_at=1.0, seconds=9.0, status="succeeded",
        output=output,
    )  # fmt: skip


def held(directory: Path, application: str = "a1", working: float = 1.0) -> ResourceUsage:
    return ResourceUsage(
        task_key=task_key(directory), application=application, queue="train", began=1.0, seconds=2.0, working=working,
        core_seconds=4.0,
    )  # fmt: skip


def span(name: str, begin: float, end: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": begin * 1e6, "dur": (end - begin) * 1e6}


def test_ranks_work_in_the_phases_in_which_they_compute(tmp_path: Path) -> None:
    idle = {"set up": 5.0, "data wait": 2.0, "wait for communication": 3.0, "wait for workers": 4.0}
    phases = idle | {"forward": 10.0, "backward": 20.0, "validate": 1.0}
    assert resource_usage.working(record(tmp_path, {"seconds": phases}), []) == pytest.approx(31)


def test_a_stage_works_while_any_span_of_its_driver_goes_on_but_for_those_of_starting(tmp_path: Path) -> None:
    events = [
        span("start Spark", 0, 4), span("read source", 4, 6), span("prepare", 5, 7), span("write dataset", 9, 10),
        {"ph": "M", "name": "process_name", "ts": 0},
    ]  # fmt: skip
    assert resource_usage.working(record(tmp_path, {}), events) == pytest.approx(4)


def test_every_application_of_a_task_is_kept_once(tmp_path: Path) -> None:
    for one in (held(tmp_path, "a1"), held(tmp_path, "a2"), held(tmp_path, "a1", working=0.0)):
        resource_usage.save(one, print)
    assert [(one.application, one.working) for one in resource_usage.read_run(tmp_path.as_uri())] == [
        ("a1", 1.0),
        ("a2", 1.0),
    ]


def test_what_cannot_be_kept_is_told_and_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "usage").write_text("a file, where a folder must be")
    told: list[str] = []
    resource_usage.save(held(tmp_path), told.append)
    assert "What a1 held could not be kept" in told[0]
