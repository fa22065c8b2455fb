"""The stages of a run on one screen."""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from stack.local import demo
from stack.local.demo import Stage
from tests.plugins.results import output
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.runs.worker_progress import GroupProgress, TrainingProgress
from trainyard.schemas.specs.task_key import TaskKey

PROGRAM = """
import pathlib, sys, time
from tests.plugins.results import output
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey

run = pathlib.Path(sys.argv[1])
(run / "specs").mkdir(parents=True)
(run / "specs" / "export.json").touch()
print("a line of Airflow's log", flush=True)
time.sleep(1.5)
key = TaskKey(dag_id="toy", run_id="r", task_id="export", directory=str(run))
RunRecord(task_key=key, job="export", application="a", started_at=time.time(), seconds=2.0, status="succeeded",
          output=output("export")).save()
sys.exit(int(sys.argv[2]))
"""


def key(run: Path, task: str) -> TaskKey:
    return TaskKey(dag_id="toy", run_id="r", task_id=task, directory=str(run))


def begin(run: Path, task: str, at: float) -> None:
    file = run / "specs" / f"{task}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    os.utime(file, (at, at))


def end(run: Path, task: str, at: float, status: str = "succeeded") -> None:
    error = "lost" if status == "failed" else None
    RunRecord(
        task_key=key(run, task), job="export", application="a", started_at=at, seconds=3.0, status=status, error=error,
        output=output("export"),
    ).save()  # fmt: skip


def test_stages_are_listed_in_the_order_in_which_they_began(tmp_path: Path) -> None:
    for number, task in enumerate(["export", "train", "evaluate"]):
        begin(tmp_path, task, 1000.0 + number)
    end(tmp_path, "export", 1001.0)
    end(tmp_path, "train", 1002.0, "failed")
    found = demo.find_stages(tmp_path)
    assert [(stage.name, stage.status, stage.seconds) for stage in found] == [
        ("export", "succeeded", 3.0), ("train", "failed", 3.0), ("evaluate", "running", None),
    ]  # fmt: skip


def test_a_stage_that_runs_again_after_a_failure_runs(tmp_path: Path) -> None:
    end(tmp_path, "train", 1000.0, "failed")
    begin(tmp_path, "train", 1010.0)
    assert [stage.status for stage in demo.find_stages(tmp_path)] == ["running"]


def test_a_training_that_runs_has_its_progress(tmp_path: Path) -> None:
    begin(tmp_path, "train", time.time())
    training = TrainingProgress(epoch=1, epochs=2, step=3, steps=9, loss=0.5, rows_per_second=10.0, seconds_left=4.0)
    GroupProgress(task_key=key(tmp_path, "train"), at=time.time(), workers=(), training=training).save()
    assert demo.find_stages(tmp_path)[0].progress == training.describe()


def test_the_table_has_a_line_for_each_stage() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    console.print(demo.as_table([Stage("export", "succeeded", 0.0, 12.4), Stage("train", "running", 10.0)], now=15.0))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.split() for line in lines] == [["export", "done", "12", "s"], ["train", "running", "5", "s"]]


@pytest.mark.slow
@pytest.mark.parametrize("status", [0, 3])
def test_without_a_terminal_a_line_is_printed_when_a_stage_begins_or_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(demo.__file__).parents[2] / "plugins"))
    runs, output = tmp_path / "runs", io.StringIO()
    command = [sys.executable, "-c", PROGRAM, str(runs / "r"), str(status)]
    assert demo.run(command, runs, tmp_path / "log", Console(file=output)) == status
    assert output.getvalue().splitlines() == ["export running", "export succeeded in 2 s"]
    assert (tmp_path / "log").read_text() == "a line of Airflow's log\n"
