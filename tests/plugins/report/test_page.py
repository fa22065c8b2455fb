"""The report of a run: what it shows without events, and what cannot be read."""

from __future__ import annotations

import itertools
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.results import output
from trainyard.files import storage
from trainyard.report import render
from trainyard.schemas.runs import outcomes
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec


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


def test_a_training_begins_with_what_was_trained(tmp_path: Path) -> None:
    directory = f"{tmp_path}/runs/toy/r"
    key = TaskKey(dag_id="toy", run_id="r", task_id="train", directory=directory)
    spec = TrainSpec(
        task_key=key, recipe="toy.recipe:network", dataset=f"{tmp_path}/toy/dataset", model=f"{tmp_path}/toy/model"
    )
    storage.replace(f"{directory}/specs/train.json", spec.to_json().encode())
    with EventLog(directory, "train", "worker 0", 1) as log, log.span("forward"):
        log.counter("seconds", forward=0.5)
    RunRecord(
        task_key=key, job="train", application="a", started_at=10.0, seconds=12.3, status="succeeded",
        output=output("train", optimizers=["SGD(lr=0.1)"], rows=40),
    ).save()  # fmt: skip
    render.render(directory)
    page = Path(f"{directory}/report.html").read_text()
    assert "<dt>Recipe</dt><dd>toy.recipe:network</dd><dt>Optimizer</dt><dd>SGD(lr=0.1)</dd>" in page
    assert "<dt>Data</dt><dd>toy/dataset@1, 40 rows an epoch</dd>" in page and 'id="unreadable"' not in page


def test_the_warnings_of_a_stage_are_beside_its_figures() -> None:
    warning = "Of the checkpoints, 2 could not be written; the last error was: OSError: no space"
    record = RunRecord(
        task_key=TaskKey(dag_id="toy", run_id="r", task_id="train", directory="/s/runs/toy/r"), job="train",
        application="a", started_at=10.0, seconds=12.3, status="succeeded", output=output("train", warnings=[warning]),
    )  # fmt: skip
    assert warning in render.render_page([record], [])


def end(folder: Path, task: str) -> None:
    """Write what a task that has ended leaves."""
    key = TaskKey(dag_id="toy", run_id="r", task_id=task, directory=str(folder))
    with EventLog(str(folder), task, "driver") as log, log.span("read"):
        pass
    RunRecord(
        task_key=key, job="script", application="a", started_at=10.0, seconds=1.0, status="succeeded",
        output={"workers": 2, "restarts": 0},
    ).save()  # fmt: skip


def test_what_cannot_be_read_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    for task in ("first", "second"):
        end(tmp_path, task)
    (tmp_path / "records/third.json").write_text('{"document": "run record", "version": 99}')
    (tmp_path / "usage").mkdir()
    (tmp_path / "usage/a.json").write_text("{")
    file = tmp_path / "events/second/driver.jsonl"
    file.write_bytes(b"{\n" + file.read_bytes())
    page = storage.read(render.render(str(tmp_path))).decode()
    assert "first" in page and "second" in page
    section = page.split('<section id="unreadable"')[1].split("</section>")[0]
    named = re.findall("<code>(.+?)</code>", section)
    assert named == ["second/driver.jsonl", "records/third.json", "usage"]


def test_a_dataset_that_cannot_be_read_does_not_cost_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(uri: str) -> None:
        raise PermissionError("denied")

    monkeypatch.setattr(render.manifest, "read_current", refuse)
    directory, dataset = f"{tmp_path}/runs/toy/r", f"{tmp_path}/toy/dataset"
    RunRecord(
        task_key=TaskKey(dag_id="toy", run_id="r", task_id="export", directory=directory), job="export",
        application="a", started_at=10.0, seconds=1.0, status="succeeded", output=output("export", uri=dataset),
    ).save()  # fmt: skip
    page = storage.read(render.render(directory)).decode()
    assert f"<code>{dataset}</code>" in page.split('<section id="unreadable"')[1].split("</section>")[0]


def test_without_anything_unreadable_there_is_no_section_about_it(tmp_path: Path) -> None:
    end(tmp_path, "first")
    assert 'id="unreadable"' not in storage.read(render.render(str(tmp_path))).decode()


def test_a_task_that_ends_while_another_renders_is_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one has read the records before, and writes the report after."""
    end(tmp_path, "first")
    read, others = outcomes.read_run, iter(["second"])

    def read_before_another_ends(directory: str, unreadable: dict[str, str]) -> list[RunRecord]:
        records = read(directory, unreadable)
        for task in others:
            end(tmp_path, task)
            render.render(directory)
        return records

    monkeypatch.setattr(outcomes, "read_run", read_before_another_ends)
    assert "second" in storage.read(render.render(str(tmp_path))).decode()


def render_after(folder: Path, tasks: int) -> list[int]:
    """Return the indices of the mapped tasks, of so many, after which the report was rendered."""
    rendered = []
    for index in range(tasks):
        key = TaskKey(dag_id="toy", run_id="r", task_id="train", map_index=index, directory=str(folder))
        Failure(task_key=key, at=float(index), error="lost").save()
        report = folder / "report.html"
        report.unlink(missing_ok=True)
        render.render_after(key)
        if report.exists():
            rendered.append(index)
    return rendered


def test_of_few_mapped_tasks_each_renders_the_report(tmp_path: Path) -> None:
    assert render_after(tmp_path, 12) == [*range(12)]


def test_many_mapped_tasks_render_the_report_ever_less_often(tmp_path: Path) -> None:
    """So the tasks that all renderings of a sweep read grow with its tasks, not with their square."""
    assert render_after(tmp_path, 80) == [*range(31), *range(32, 63, 2), *range(64, 80, 4)]


@pytest.mark.slow
def test_mapped_tasks_that_end_again_after_they_were_cleared_render_the_report_as_often(tmp_path: Path) -> None:
    """What they left is there from the beginning, as where drivers have ended long before Airflow's tasks."""
    render_after(tmp_path, 64)
    assert render_after(tmp_path, 64) == [*range(0, 64, 4)]


def test_a_task_that_is_not_mapped_renders_what_mapped_ones_left_out(tmp_path: Path) -> None:
    render_after(tmp_path, 33)
    end(tmp_path, "choose")
    render.render_after(TaskKey(dag_id="toy", run_id="r", task_id="choose", directory=str(tmp_path)))
    assert "train@32" in (tmp_path / "report.html").read_text()


def test_a_report_is_outdated_once_the_usage_of_an_application_is_stored(tmp_path: Path) -> None:
    """Airflow stores it some time after the driver has written its record."""
    end(tmp_path, "first")
    render.refresh(str(tmp_path))
    (tmp_path / "report.html").write_text("the report")
    render.refresh(str(tmp_path))
    assert (tmp_path / "report.html").read_text() == "the report"
    storage.replace(f"{tmp_path}/usage/a.json", b"{")
    render.refresh(str(tmp_path))
    assert "first" in (tmp_path / "report.html").read_text()


def test_a_run_of_which_no_application_has_ended_has_no_report(tmp_path: Path) -> None:
    render.render_after(TaskKey(dag_id="toy", run_id="r", task_id="export", directory=str(tmp_path)))
    render.refresh(str(tmp_path))
    assert not (tmp_path / "report.html").exists()


def test_a_report_that_many_open_at_once_is_rendered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end(tmp_path, "first")
    rendered, opened = list[str](), threading.Event()

    def render_slowly(directory: str) -> None:
        rendered.append(directory)
        assert opened.wait(60)

    monkeypatch.setattr(render, "render", render_slowly)
    reader = threading.Thread(target=render.refresh, args=[str(tmp_path)])
    reader.start()
    while not rendered:
        time.sleep(0.01)
    render.refresh(str(tmp_path))
    opened.set()
    reader.join()
    assert rendered == [str(tmp_path)]
    render.refresh(str(tmp_path))
    assert len(rendered) == 2, "it is still older than the end of the task"


def test_rendering_ends_although_tasks_end_all_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, numbers = outcomes.read_run, itertools.count()

    def read_and_end(directory: str, unreadable: dict[str, str]) -> list[RunRecord]:
        end(tmp_path, f"task-{next(numbers)}")
        return read(directory, unreadable)

    monkeypatch.setattr(outcomes, "read_run", read_and_end)
    render.render(str(tmp_path))
    assert next(numbers) == render.ATTEMPTS


def test_a_dataset_or_an_evaluation_outside_of_the_storage_is_named_and_not_read(tmp_path: Path) -> None:
    directory = f"{tmp_path}/s/runs/toy/r"
    outside = {"export": f"{tmp_path}/elsewhere/dataset", "evaluate": f"{tmp_path}/elsewhere/evaluation.json"}
    outputs = {
        "export": output("export", uri=outside["export"]),
        "evaluate": output("evaluate", evaluation=outside["evaluate"]),
    }
    for task, returned in outputs.items():
        RunRecord(
            task_key=TaskKey(dag_id="toy", run_id="r", task_id=task, directory=directory), job=task, application="a",
            started_at=10.0, seconds=1.0, status="succeeded", output=returned,
        ).save()  # fmt: skip
    page = storage.read(render.render(directory)).decode()
    unreadable = page.split('<section id="unreadable"')[1].split("</section>")[0]
    assert all(uri in unreadable for uri in outside.values()) and "is not in the storage" in unreadable
