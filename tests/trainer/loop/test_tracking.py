"""Runs in TensorBoard and MLflow, read with their own libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.loop.tracking import MLflow, TensorBoard, Tracker

RECIPES = "tests.trainer.recipes"
PARAMS = {"recipe": "a:b", "batch_size": 50}


class Broken(Tracker):
    """A tracker whose server is not reachable."""

    def epoch(self, number: int, figures: object) -> None:
        raise ConnectionError("not reachable")

    def end(self, succeeded: bool) -> None: ...


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


def test_tensorboard_reads_the_metrics_of_every_epoch(batches: str, tmp_path: Path) -> None:
    epochs = train(batches, tmp_path, TensorBoard(str(tmp_path / "board"), PARAMS))
    read = EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    points = read.Scalars("loss")
    assert [point.step for point in points] == [1, 2, 3]
    assert [point.value for point in points] == pytest.approx([epoch["loss"] for epoch in epochs])


def test_event_files_are_written_to_any_storage(batches: str, tmp_path: Path) -> None:
    train(batches, tmp_path, TensorBoard("memory://board/train", PARAMS))
    from trainyard import storage

    (name,) = storage.list_names("memory://board/train")
    assert name.startswith("events.out.tfevents.")


@pytest.mark.slow
def test_mlflow_has_one_run_with_metrics_and_parameters(batches: str, tmp_path: Path, server: str) -> None:
    epochs = train(batches, tmp_path, MLflow(server, "digits", "r1 train", "runs/r1/train", PARAMS))
    ((status, metrics, params),) = runs(server, "digits")
    assert status == "FINISHED"
    assert metrics["loss"] == pytest.approx(epochs[-1]["loss"])
    assert params == {"recipe": "a:b", "batch_size": "50"}


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
    assert len(train(batches, tmp_path, Broken())) == 3
    assert capsys.readouterr().out.count("Broken failed, and gets no more metrics of this run: not reachable") == 1


def test_an_invalid_server_is_refused_before_training() -> None:
    with pytest.raises(TrainyardError, match=r"mlflow='nonsense://x'.*http://mlflow:5000"):
        MLflow("nonsense://x", "digits", "r1 train", "runs/r1/train", PARAMS)
