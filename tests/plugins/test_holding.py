"""What is kept of an application that has ended: how much it held, and for how long it worked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainyard import holding
from trainyard.contract.record import RunRecord
from trainyard.contract.spec import Place
from trainyard.holding import Holding


def place(directory: Path) -> Place:
    return Place(dag_id="digits", run_id="r1", task_id="train", directory=directory.as_uri())


def record(directory: Path, output: dict[str, Any]) -> RunRecord:
    return RunRecord(
        place=place(directory), job="train", application="a1", started_at=1.0, seconds=9.0, status="succeeded",
        output=output,
    )  # fmt: skip


def held(directory: Path, application: str = "a1", working: float = 1.0) -> Holding:
    return Holding(
        place=place(directory), application=application, queue="train", began=1.0, seconds=2.0, working=working,
        core_seconds=4.0,
    )  # fmt: skip


def span(name: str, begin: float, end: float) -> dict[str, Any]:
    return {"ph": "X", "name": name, "ts": begin * 1e6, "dur": (end - begin) * 1e6}


def test_ranks_work_in_the_phases_in_which_they_compute(tmp_path: Path) -> None:
    idle = {"set up": 5.0, "data wait": 2.0, "communicate": 3.0, "wait for ranks": 4.0}
    phases = idle | {"forward": 10.0, "backward": 20.0, "validate": 1.0}
    assert holding.working(record(tmp_path, {"seconds": phases}), []) == pytest.approx(31)


def test_a_stage_works_while_any_span_of_its_driver_goes_on_but_for_those_of_starting(tmp_path: Path) -> None:
    events = [
        span("start Spark", 0, 4), span("read source", 4, 6), span("prepare", 5, 7), span("write batches", 9, 10),
        {"ph": "M", "name": "process_name", "ts": 0},
    ]  # fmt: skip
    assert holding.working(record(tmp_path, {}), events) == pytest.approx(4)


def test_every_application_of_a_task_is_kept_once(tmp_path: Path) -> None:
    for one in (held(tmp_path, "a1"), held(tmp_path, "a2"), held(tmp_path, "a1", working=0.0)):
        holding.keep(one, print)
    assert [(one.application, one.working) for one in holding.of_run(tmp_path.as_uri())] == [("a1", 1.0), ("a2", 1.0)]


def test_what_cannot_be_kept_is_told_and_fails_nothing(tmp_path: Path) -> None:
    (tmp_path / "held").write_text("a file, where a folder must be")
    told: list[str] = []
    holding.keep(held(tmp_path), told.append)
    assert "What a1 held could not be kept" in told[0]
