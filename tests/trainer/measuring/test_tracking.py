"""Runs in TensorBoard and MLflow, read with their own libraries."""

from __future__ import annotations

import itertools
import math
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import requests
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.schemas.datasets import manifest
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec
from trainyard.trainer.group.worker import open_trackers
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.measuring import tracking
from trainyard.trainer.measuring.tracking import HTTP_DEFAULTS, MLflow, TensorBoard, Tracker

RECIPES = "tests.trainer.recipes"
PARAMS = {"recipe": "a:b", "batch_size": 50}


class Broken(Tracker):
    """A tracker whose server is not reachable."""

    ended = False

    def epoch(self, number: int, figures: object) -> None:
        raise ConnectionError("not reachable")

    def end(self, succeeded: bool) -> None:
        self.ended = True


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    return datasets.write(tmp_path_factory.mktemp("data") / "dataset", {"train": datasets.blobs(200)})


def train(batches: str, folder: Path, tracker: Tracker, recipe: str = "linear") -> list[dict[str, float]]:
    with tracker:
        fitted = fit(
            f"{RECIPES}:{recipe}", dataset=batches, model=f"{folder}/model", epochs=3, batch_size=50,
            trackers=[tracker],
        )  # fmt: skip
    return fitted.history.epochs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


def runs(server: str, name: str) -> list[tuple[str, dict[str, float], dict[str, str]]]:
    client = MlflowClient(server)
    (experiment,) = [each for each in client.search_experiments() if each.name == name]
    return [
        (run.info.status, run.data.metrics, run.data.params) for run in client.search_runs([experiment.experiment_id])
    ]


def test_a_worker_has_the_trackers_of_its_spec(batches: str, tmp_path: Path, server: str) -> None:
    spec = TrainSpec(
        task_key=TaskKey(dag_id="worker", run_id="r", task_id="t", directory=str(tmp_path)), recipe="a:b",
        dataset=batches, model="m", trackers=("tensorboard", {"name": "mlflow", "uri": server}),
    )  # fmt: skip
    for tracker in open_trackers(spec, manifest.read_current(batches)):
        with tracker:
            tracker.epoch(1, {"loss": 0.5})
    read = EventAccumulator(str(tmp_path / "tensorboard/t"))
    read.Reload()
    assert [point.value for point in read.Scalars("loss")] == [0.5]
    [(status, metrics, params)] = runs(server, "worker")
    assert (status, metrics, params["recipe"]) == ("FINISHED", {"loss": 0.5}, "a:b")


def test_tensorboard_reads_the_metrics_of_every_epoch(batches: str, tmp_path: Path) -> None:
    epochs = train(batches, tmp_path, TensorBoard(str(tmp_path / "board"), PARAMS))
    read = EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    points = read.Scalars("loss")
    assert [point.step for point in points] == [1, 2, 3]
    assert [point.value for point in points] == pytest.approx([epoch["loss"] for epoch in epochs])


def test_points_that_come_together_are_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    replace = storage.replace
    monkeypatch.setattr(storage, "replace", lambda uri, data: (written.append(uri), replace(uri, data)))
    with TensorBoard(str(tmp_path / "board"), PARAMS) as board:
        board.epochs([(step, {"loss": 1 / step}) for step in (1, 2, 3)])
        assert len(written) == 1
    read = EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    assert [(point.step, point.value) for point in read.Scalars("loss")] == [
        (step, pytest.approx(1 / step)) for step in (1, 2, 3)
    ]


def test_event_files_are_written_to_any_storage(batches: str, tmp_path: Path) -> None:
    train(batches, tmp_path, TensorBoard("memory://board/train", PARAMS))
    (name,) = storage.list_names("memory://board/train")
    assert name.startswith("events.out.tfevents.")


def test_a_file_is_written_less_often_the_larger_it_is(tmp_path: Path) -> None:
    with TensorBoard(str(tmp_path / "board"), PARAMS) as board:
        board.epochs([(step, {"loss": 1 / step}) for step in range(1, 2001)])
        assert board.pause == pytest.approx(
            sum(file.stat().st_size for file in (tmp_path / "board").iterdir()) / tracking.BYTES_PER_SECOND
        )
        assert board.pause > 1


@pytest.mark.slow
def test_mlflow_without_a_server_is_refused_and_the_tracker_before_it_ends(tmp_path: Path) -> None:
    spec = TrainSpec(
        task_key=TaskKey(dag_id="worker", run_id="r", task_id="t", directory=str(tmp_path)), recipe="a:b",
        dataset="d", model="m", trackers=("tensorboard", "mlflow"),
    )  # fmt: skip
    with pytest.raises(TrainyardError, match=r"trackers: 'mlflow' has no uri; write .*http://mlflow:5000"):
        tracking.open_trackers(spec, PARAMS)
    assert len(list((tmp_path / "tensorboard/t").iterdir())) == 1, "the end has written its file"


@pytest.mark.full
@pytest.mark.slow
def test_mlflow_has_one_run_with_metrics_and_parameters(batches: str, tmp_path: Path, server: str) -> None:
    epochs = train(batches, tmp_path, MLflow(server, "digits", "r1 train", "runs/r1/train", PARAMS))
    ((status, metrics, params),) = runs(server, "digits")
    assert status == "FINISHED"
    assert metrics["loss"] == pytest.approx(epochs[-1]["loss"])
    assert params == {"recipe": "a:b", "batch_size": "50"}


@pytest.mark.slow
def test_mlflow_gets_metrics_of_any_name(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = {
        "../loss": "loss", "/loss": "loss_2", "a//b/": "a/b", "losses/./a": "losses/a", "..a": "a", "/": "metric",
        "hit@10": "hit_10", "hit_10": "hit_10_2", "loss/a: b": "loss/a: b",
        "x" * 260: "x" * 250, "x" * 261: "x" * 248 + "_2", "y" * 249 + "/y": "y" * 249,
    }  # fmt: skip
    with MLflow(server, "names", "r1 train", "runs/r1/names", PARAMS) as tracker:
        for epoch in (1, 2):
            tracker.epoch(epoch, {name: epoch + place / 10 for place, name in enumerate(names)})
    assert capsys.readouterr().out == ""
    ((status, metrics, _),) = runs(server, "names")
    assert status == "FINISHED" and metrics == {name: 2 + place / 10 for place, name in enumerate(names.values())}


@pytest.mark.slow
def test_mlflow_gets_the_metrics_beside_one_that_it_refuses_and_those_after_it(
    server: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server on Windows refuses colons."""
    log_batch = MlflowClient.log_batch

    def refuse_colons(client: MlflowClient, run: str, metrics: Any = (), params: Any = ()) -> None:
        if any(":" in metric.key for metric in metrics):
            raise MlflowException("Invalid value for a name")
        log_batch(client, run, metrics, params)

    monkeypatch.setattr(MlflowClient, "log_batch", refuse_colons)
    with MLflow(server, "strict", "r1 train", "runs/r1/strict", PARAMS) as tracker:
        for epoch in (1, 2):
            tracker.epoch(epoch, {"loss": epoch, "loss: a": 2.0, "rate": 0.1})
    assert capsys.readouterr().out.count("MLflow refuses 'loss: a': Invalid value for a name") == 2
    ((status, metrics, _),) = runs(server, "strict")
    assert status == "FINISHED" and metrics == {"loss": 2.0, "rate": 0.1}


@pytest.mark.slow
def test_a_run_that_was_given_up_is_not_ended_by_a_late_answer(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = MLflow(server, "late", "r1 train", "runs/r1/late", PARAMS)
    log_batch = MlflowClient.log_batch

    def give_up(*args: Any, **options: Any) -> None:
        log_batch(*args, **options)
        tracker.failed = True

    monkeypatch.setattr(MlflowClient, "log_batch", give_up)
    monkeypatch.setattr(tracking, "MAX_METRICS", 1)
    tracker._next_try = math.inf
    tracker.epoch(1, {"loss": 1.0, "rate": 2.0})
    tracker.end(True)
    ((status, metrics, _),) = runs(server, "late")
    assert status == "RUNNING" and metrics == {"loss": 1.0}


@pytest.mark.slow
def test_an_attempt_after_a_failed_one_resumes_its_run(batches: str, tmp_path: Path, server: str) -> None:
    def tracker(batch_size: int) -> MLflow:
        changed = PARAMS | {"batch_size": batch_size}
        return MLflow(server, "retried", "r1 train", "runs/r1/train", changed)

    with pytest.raises(TrainyardError, match="diverged"):
        train(batches, tmp_path, tracker(50), recipe="diverging")
    assert [status for status, _, _ in runs(server, "retried")] == ["FAILED"]
    train(batches, tmp_path, tracker(60))
    assert [status for status, _, _ in runs(server, "retried")] == ["FINISHED"]
    train(batches, tmp_path, tracker(50))
    assert [status for status, _, _ in runs(server, "retried")] == ["FINISHED"] * 2, (
        "after a success a new run is created"
    )


def test_a_tracker_that_fails_does_not_end_the_training(
    batches: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker = Broken()
    assert len(train(batches, tmp_path, tracker)) == 3
    assert not tracker.ended, "it would wait for the server again"
    assert capsys.readouterr().out.count("Broken failed, and gets no more metrics of this run: not reachable") == 1


def test_an_invalid_server_is_refused_before_training() -> None:
    with pytest.raises(TrainyardError, match=r"MLflow at 'nonsense://x'.*http://mlflow:5000"):
        MLflow("nonsense://x", "digits", "r1 train", "runs/r1/train", PARAMS)


@pytest.mark.parametrize("listens", [False, True])
def test_training_continues_without_a_server_that_does_not_answer(
    batches: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, listens: bool
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        if listens:  # accepts the connection, and does not answer
            silent.listen()
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert len(train(batches, tmp_path, MLflow(uri, "digits", "r1 train", "runs/r1/train", PARAMS))) == 3
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith("MLflow")]
    later, at_end = said if listens else (said[0], said[-1])
    assert later.startswith("MLflow does not answer, and gets the metrics later: API request to http")
    assert at_end.startswith("MLflow does not answer, and misses the end of the run: API request to http")


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
def test_a_server_that_answers_again_gets_the_metrics_that_it_missed(
    server: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    """One request has no answer: for the experiment, the run, its parameters, or the first metrics."""
    name, counts = f"outage {number}", itertools.count(1)
    for method in ("get_experiment_by_name", "create_experiment", "create_run", "log_batch"):
        request = getattr(MlflowClient, method)

        def ask(*args: Any, request: Any = request, **options: Any) -> Any:
            if next(counts) == number:
                raise MlflowException("API request failed") from requests.ConnectionError()
            return request(*args, **options)

        monkeypatch.setattr(MlflowClient, method, ask)
    monkeypatch.setattr(tracking, "PAUSE", 0)
    with MLflow(server, name, "r1 train", "runs/r1/train", PARAMS) as tracker:
        for epoch in (1, 2, 3):
            tracker.epoch(epoch, {"loss": 1 / epoch})
    monkeypatch.undo()
    assert capsys.readouterr().out.count("MLflow does not answer, and gets the metrics later") == 1
    ((status, metrics, params),) = runs(server, name)
    assert (status, metrics, params) == ("FINISHED", {"loss": 1 / 3}, {"recipe": "a:b", "batch_size": "50"})
    client = MlflowClient(server)
    experiment = client.get_experiment_by_name(name)
    assert experiment
    (run,) = client.search_runs([experiment.experiment_id])
    assert [metric.step for metric in client.get_metric_history(run.info.run_id, "loss")] == [1, 2, 3]


def test_requests_to_mlflow_end_soon_unless_the_environment_sets_their_time(
    server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in HTTP_DEFAULTS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "70")
    with pytest.raises(TrainyardError):
        MLflow("nonsense://x", "digits", "r1 train", "runs/r1/train", PARAMS)
    assert {name: os.environ[name] for name in HTTP_DEFAULTS} == HTTP_DEFAULTS | {"MLFLOW_HTTP_REQUEST_TIMEOUT": "70"}


def test_an_event_file_that_was_not_written_is_written_after_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = TensorBoard(str(tmp_path), PARAMS)

    def fail(uri: str, data: bytes) -> None:
        raise OSError("standby")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "replace", fail)
        board.epoch(1, {"loss": 1.0})
    assert "TensorBoard: epoch 1 is not written yet: OSError: standby" in capsys.readouterr().out
    board.epoch(2, {"loss": 0.5})
    read = EventAccumulator(str(tmp_path))
    read.Reload()
    assert [point.step for point in read.Scalars("loss")] == [1, 2]
    board.end(True)


def test_the_end_of_an_event_file_is_written_again_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board, replace, errors = TensorBoard(str(tmp_path), PARAMS), storage.replace, [OSError("standby")]

    def fail_once(uri: str, data: bytes) -> None:
        if errors:
            raise errors.pop()
        replace(uri, data)

    monkeypatch.setattr(storage, "replace", fail_once)
    board.end(True)
    assert len(list(tmp_path.iterdir())) == 1
