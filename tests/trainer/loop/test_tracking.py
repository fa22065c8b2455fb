"""Runs followed by TensorBoard and MLflow, read by their own readers."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.loop.tracking import MLflow, TensorBoard

RECIPES = "tests.trainer.recipes"
PARAMS = {"recipe": "a:b", "batch_size": 50}


class Broken:
    """A tracker whose server went away."""

    def epoch(self, number: int, figures: object) -> None:
        raise ConnectionError("nobody listens")

    def end(self, succeeded: bool) -> None:
        raise ConnectionError("nobody listens")


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    return datasets.write(tmp_path_factory.mktemp("data") / "dataset", {"train": datasets.blobs(200)})


def tracked(batches: str, folder: Path, *trackers: object, recipe: str = "linear") -> list[dict[str, float]]:
    fitted = fit(
        f"{RECIPES}:{recipe}", dataset=batches, model=f"{folder}/model", epochs=3, batch_size=50,
        trackers=trackers,
    )  # fmt: skip
    return fitted.history.epochs


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db"


def runs(server: str, name: str) -> list[tuple[str, dict[str, float], dict[str, str]]]:
    client = MlflowClient(server)
    (experiment,) = [found for found in client.search_experiments() if found.name == name]
    return [
        (run.info.status, run.data.metrics, run.data.params) for run in client.search_runs([experiment.experiment_id])
    ]


def test_tensorboard_reads_every_epochs_figures(batches: str, tmp_path: Path) -> None:
    epochs = tracked(batches, tmp_path, TensorBoard(str(tmp_path / "board"), PARAMS))
    read = EventAccumulator(str(tmp_path / "board"))
    read.Reload()
    points = read.Scalars("loss")
    assert [point.step for point in points] == [1, 2, 3]
    assert [point.value for point in points] == pytest.approx([epoch["loss"] for epoch in epochs])


def test_event_files_go_to_any_storage(batches: str, tmp_path: Path) -> None:
    tracked(batches, tmp_path, TensorBoard("memory://board/train", PARAMS))
    from trainyard import storage

    (name,) = storage.list_names("memory://board/train")
    assert name.startswith("events.out.tfevents.")


def test_mlflow_has_one_run_with_figures_and_parameters(batches: str, tmp_path: Path, server: str) -> None:
    epochs = tracked(batches, tmp_path, MLflow(server, "digits", "r1 train", "runs/r1/train", PARAMS))
    ((status, metrics, params),) = runs(server, "digits")
    assert status == "FINISHED"
    assert metrics["loss"] == pytest.approx(epochs[-1]["loss"])
    assert params == {"recipe": "a:b", "batch_size": "50"}


def test_a_try_that_follows_a_failed_one_goes_on_with_its_run(batches: str, tmp_path: Path, server: str) -> None:
    def tracker(batch_size: int) -> MLflow:
        changed = PARAMS | {"batch_size": batch_size}
        return MLflow(server, "retried", "r1 train", "runs/r1/train", changed)

    with pytest.raises(TrainyardError, match="diverged"):
        tracked(batches, tmp_path, tracker(50), recipe="diverging")
    assert [status for status, _, _ in runs(server, "retried")] == ["FAILED"]
    tracked(batches, tmp_path, tracker(60))
    assert [status for status, _, _ in runs(server, "retried")] == ["FINISHED"]
    tracked(batches, tmp_path, tracker(50))
    assert [status for status, _, _ in runs(server, "retried")] == ["FINISHED"] * 2, "done anew, it is another run"


def test_a_tracker_that_fails_ends_no_training(
    batches: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(tracked(batches, tmp_path, Broken())) == 3
    assert capsys.readouterr().out.count("Broken takes no more figures of this run: nobody listens") == 1


def test_a_server_that_cannot_be_is_refused_before_training() -> None:
    with pytest.raises(TrainyardError, match=r"mlflow='nonsense://x'.*http://mlflow:5000"):
        MLflow("nonsense://x", "digits", "r1 train", "runs/r1/train", PARAMS)
