"""`trainyard run` lists runs, and shows what became of one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.results import output
from trainyard.cli import runs
from trainyard.cli.main import main
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.schemas.runs.failure import Failure
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec

Show = Callable[[str], str]


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> Show:
    """A function that returns what the command prints about a run."""

    def show(directory: str) -> str:
        assert main(["run", "show", directory]) == 0
        return capsys.readouterr().out.removesuffix("\n")

    return show


def save(
    root: Path,
    run: str,
    task: str,
    started: float,
    error: str | None = None,
    dag: str = "toy",
    map_index: int = -1,
    **fields: Any,
) -> None:
    key = TaskKey(dag_id=dag, run_id=run, task_id=task, map_index=map_index, directory=f"{root}/runs/{dag}/{run}")
    RunRecord(
        task_key=key, job=task, application="a",
        started_at=started, seconds=12.34, status="failed" if error else "succeeded",
        output=output(task, **fields), error=error,
    ).save()  # fmt: skip


def test_each_stage_is_a_line_in_the_order_of_their_starts(tmp_path: Path, show: Show) -> None:
    save(tmp_path, "r1", "train", 20.0)
    save(tmp_path, "r1", "export", 10.0)
    save(tmp_path, "r1", "predict", 30.0, error="no column y\nand more")
    *lines, blank, report = show(f"{tmp_path}/runs/toy/r1").splitlines()
    assert (blank, report) == ("", f"report  {tmp_path}/runs/toy/r1/report.html")
    assert [line.split()[:3] for line in lines] == [
        ["stage", "status", "seconds"],
        ["export", "succeeded", "12.3"],
        ["train", "succeeded", "12.3"],
        ["predict", "failed", "12.3"],
    ]
    assert lines[1].endswith("rows 40, train 30, validation 10, partitions 1, shards 2, record_batches 3, bytes 4000")
    assert "  dataset_version 1, loss 0.25, accuracy 0.75, epochs 3, " in lines[2]
    assert lines[3].endswith("no column y")


def test_values_that_no_training_row_has_are_said_to_be_so(tmp_path: Path, show: Show) -> None:
    save(tmp_path, "r1", "export", 10.0, unseen={"city": 0.25, "store": 0.0})
    assert "unseen city 0.25, unseen store 0" in show(f"{tmp_path}/runs/toy/r1")


def test_what_was_trained_is_below_the_stages(tmp_path: Path, show: Show) -> None:
    directory = f"{tmp_path}/runs/toy/r1"
    save(tmp_path, "r1", "train", 20.0, optimizers=["SGD(lr=0.1)"], rows=40)
    key = TaskKey(dag_id="toy", run_id="r1", task_id="train", directory=directory)
    spec = TrainSpec(
        task_key=key, recipe="toy.recipe:network", dataset=f"{tmp_path}/toy/dataset", model=f"{tmp_path}/toy/model"
    )
    storage.replace(f"{directory}/specs/train.json", spec.to_json().encode())
    lines = show(directory).splitlines()
    assert lines[3:6] == ["train", "recipe     toy.recipe:network", "optimizer  SGD(lr=0.1)"]
    assert "data       toy/dataset@1, 40 rows an epoch" in lines


def test_the_trainings_of_a_sweep_have_what_distinguishes_them(tmp_path: Path, show: Show) -> None:
    directory = f"{tmp_path}/runs/toy/r1"
    for index, rate in enumerate([0.1, 0.01]):
        save(tmp_path, "r1", "train", 20.0 + index, map_index=index)
        key = TaskKey(dag_id="toy", run_id="r1", task_id="train", map_index=index, directory=directory)
        spec = TrainSpec(
            task_key=key, recipe="toy.recipe:network", recipe_params={"rate": rate}, dataset=f"{tmp_path}/toy/dataset",
            model=f"{tmp_path}/toy/model/{index}",
        )  # fmt: skip
        storage.replace(f"{directory}/specs/{key.task}.json", spec.to_json().encode())
    lines = show(directory).splitlines()
    assert [line.split("  ")[0] for line in lines[1:3]] == ["train@0 (rate=0.1)", "train@1 (rate=0.01)"]


def test_warnings_are_below_the_stages(tmp_path: Path, show: Show) -> None:
    save(tmp_path, "r1", "evaluate", 10.0, warnings=["The accuracy is low.", "Odd."])
    lines = show(f"{tmp_path}/runs/toy/r1").splitlines()
    assert lines[2:5] == ["", "warning: evaluate: The accuracy is low.", "warning: evaluate: Odd."]


def test_a_record_that_cannot_be_read_is_named_below_the_others(tmp_path: Path, show: Show) -> None:
    save(tmp_path, "r1", "export", 10.0)
    newer = tmp_path / "runs/toy/r1/records/train.json"
    newer.write_text('{"document": "run record", "version": 99}')
    lines = show(runs.newest_run(str(tmp_path), "toy")).splitlines()
    assert lines[1].split()[0] == "export" and lines[2] == ""
    assert lines[3].startswith("cannot be read: records/train.json: ") and "is a run record of version 99" in lines[3]


def set_modified(root: Path, run: str, seconds: float) -> None:
    for file in (root / "runs/toy" / run).rglob("*.json"):
        os.utime(file, (seconds, seconds))


def test_the_newest_run_is_the_one_whose_last_record_was_written_last(tmp_path: Path) -> None:
    save(tmp_path, "a", "export", 30.0)
    save(tmp_path, "b", "export", 10.0)
    set_modified(tmp_path, "b", 20.0)
    save(tmp_path, "b", "train", 20.0)
    (tmp_path / "runs/toy/c/records").mkdir(parents=True)
    (tmp_path / "runs/toy/d/records").mkdir(parents=True)
    (tmp_path / "runs/toy/d/records/export.json").write_text('{"document": "run record", "version": 1}')
    set_modified(tmp_path, "a", 40.0)
    set_modified(tmp_path, "d", 2e9)
    assert runs.newest_run(str(tmp_path), "toy") == f"{tmp_path}/runs/toy/b", "d is of an earlier release"
    failed = TaskKey(dag_id="toy", run_id="a", task_id="train", directory=f"{tmp_path}/runs/toy/a")
    Failure(task_key=failed, at=50.0, error="no GPU").save()
    set_modified(tmp_path, "b", 45.0)
    assert runs.newest_run(str(tmp_path), "toy") == f"{tmp_path}/runs/toy/a", "failures count"


def test_records_of_older_runs_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, run in enumerate(("b", "c", "a"), start=1):
        save(tmp_path, run, "export", float(seconds))
        set_modified(tmp_path, run, float(seconds))
    files: list[str] = []
    read = storage.read

    def record(uri: str, limit: int | None = None) -> bytes:
        files.append(uri)
        return read(uri, limit)

    monkeypatch.setattr(storage, "read", record)
    assert runs.newest_run(str(tmp_path), "toy") == f"{tmp_path}/runs/toy/a"
    assert files == [f"{tmp_path}/runs/toy/a/records/export.json"]


def test_a_dag_without_a_run_and_a_directory_without_one_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(TrainyardError, match="DAG 'toy' has no readable run in"):
        runs.newest_run(str(tmp_path), "toy")
    assert main(["run", "show", str(tmp_path)]) == 1
    assert "is not the directory of a run: it has no run record" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["toy", "toy/r2", "{root}/runs/toy/r2"])
def test_a_run_is_named_by_its_dag_its_id_or_its_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    connect(tmp_path, monkeypatch)
    for number in (1, 2):
        save(tmp_path, f"r{number}", "export", 10.0)
        set_modified(tmp_path, f"r{number}", float(number))
    assert main(["run", "show", name.format(root=tmp_path), "--conn-id", "ours", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"].endswith("/runs/toy/r2")
    assert [task["status"] for task in found["tasks"]] == ["succeeded"]


def connect(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"conn_type": "trainyard", "extra": {"storage": root.as_uri()}}
    monkeypatch.setenv("AIRFLOW_CONN_OURS", json.dumps(fields))


@pytest.mark.parametrize(
    ("arguments", "names"),
    [([], ["other/r9", "toy/r2", "toy/r1"]), (["toy"], ["toy/r2", "toy/r1"]), (["--limit", "1"], ["other/r9"])],
)
def test_runs_are_listed_the_last_changed_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], names: list[str],
) -> None:  # fmt: skip
    connect(tmp_path, monkeypatch)
    save(tmp_path, "r1", "export", 10.0, error="no")
    save(tmp_path, "r2", "export", 10.0)
    for number in (1, 2):
        set_modified(tmp_path, f"r{number}", float(number))
    save(tmp_path, "r9", "export", 10.0, dag="other")
    assert main(["run", "list", *arguments, "--conn-id", "ours", "-o", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["run"] for row in rows] == names
    failed = {"toy/r1": "export", "toy/r2": "", "other/r9": ""}
    assert [(row["ended"], row["failed"]) for row in rows] == [(1, failed[name]) for name in names]


def test_runs_that_are_being_removed_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(tmp_path, monkeypatch)
    for run in ("r1", ".removed-r2"):
        save(tmp_path, run, "export", 10.0)
    set_modified(tmp_path, "r1", 1.0)
    assert main(["run", "list", "--conn-id", "ours", "-o", "json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["toy/r1"]
    assert runs.newest_run(str(tmp_path), "toy") == f"{tmp_path}/runs/toy/r1"


def test_a_list_with_a_run_that_cannot_be_read_names_its_records_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    connect(tmp_path, monkeypatch)
    save(tmp_path, "r1", "export", 10.0)
    (tmp_path / "runs/toy/r1/records/train.json").write_text('{"document": "run record", "version": 99}')
    assert main(["run", "list", "--conn-id", "ours", "-o", "json"]) == 1
    printed = capsys.readouterr()
    assert [(row["run"], row["ended"]) for row in json.loads(printed.out)] == [("toy/r1", 1)]
    assert printed.err.startswith("cannot be read: toy/r1/records/train.json: ")


def test_a_task_without_a_record_of_its_driver_has_the_error_of_the_task(tmp_path: Path, show: Show) -> None:
    task_key = TaskKey(dag_id="toy", run_id="r1", task_id="train", directory=f"{tmp_path}/runs/toy/r1")
    Failure(task_key=task_key, at=20.0, error="On node 'gpu7', nvidia-smi found 0 GPUs\nand more").save()
    line = show(runs.newest_run(str(tmp_path), "toy")).splitlines()[1]
    assert line.startswith("train  failed") and line.endswith("  On node 'gpu7', nvidia-smi found 0 GPUs")
