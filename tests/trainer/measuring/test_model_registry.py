"""Models in MLflow's registry, loaded with its own library."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import mlflow.pyfunc
import numpy as np
import pandas as pd
import pytest
from mlflow.tracking import MlflowClient

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.schemas.specs.train import TrainSpec
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.measuring import tracking
from trainyard.trainer.measuring.model_registry import TIMEOUT, wait_for_uploads
from trainyard.trainer.measuring.tracking import HTTP_DEFAULTS, MLflow
from trainyard.trainer.model.artifacts.trained_model import load_model

ROWS = datasets.blobs(20, seed=3)


@dataclass
class Training:
    """A trained model, and the server that has its run."""

    server: str
    model: str
    formats: dict[str, str]
    weights: str


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Training:
    folder = tmp_path_factory.mktemp("registry")
    batches = datasets.write(folder / "dataset", {"train": datasets.blobs(100)})
    fitted = fit(
        "tests.trainer.recipes:linear", dataset=batches, model=str(folder / "model"), epochs=1, formats=("mlflow",)
    )
    assert fitted.artifact
    return Training(
        f"sqlite:///{folder}/mlflow.db", str(folder / "model"), fitted.formats, fitted.artifact.weights_sha256
    )


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MLflow keeps the artifacts of a server without a folder for them below the working directory."""
    monkeypatch.chdir(tmp_path)


def start(trained: Training, name: str, registered_model_name: str | None) -> MLflow:
    return MLflow(trained.server, "digits", name, f"runs/{name}", {}, registered_model_name)


@pytest.mark.slow
def test_each_training_is_a_version_that_predicts_what_its_model_predicts(
    trained: Training, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = list[str]()
    for name in ("first", "second"):
        with start(trained, name, "ziffern der post") as tracker:
            versions += tracking.register([tracker], trained.formats, trained.weights)
    assert versions == ["models:/ziffern der post/1", "models:/ziffern der post/2"]
    run = MlflowClient(trained.server).get_model_version("ziffern der post", "2").run_id
    assert MlflowClient(trained.server).get_run(run).info.run_name == "second"
    monkeypatch.setattr(sys, "path", sys.path.copy())  # MLflow adds the code of the model
    mlflow.set_tracking_uri(trained.server)
    served = mlflow.pyfunc.load_model(versions[1]).predict(pd.DataFrame({"x": list(ROWS["x"])}))
    assert np.array_equal(served["class_"].to_numpy(), load_model(trained.model).predict({"x": ROWS["x"]})["class_"])


@pytest.mark.slow
def test_another_attempt_of_a_task_registers_no_second_version(trained: Training) -> None:
    first = start(trained, "attempts", "again")
    versions = tracking.register([first], trained.formats, trained.weights)
    with start(trained, "attempts", "again") as another:
        assert tracking.register([another], trained.formats, trained.weights) == versions
        assert tracking.register([another], trained.formats, "f" * 64) == ["models:/again/2"], "other weights"


@pytest.mark.slow
def test_trackers_without_a_registered_model_register_nothing(trained: Training) -> None:
    with start(trained, "none", None) as tracker:
        assert tracking.register([tracker], trained.formats, trained.weights) == []


@pytest.mark.slow
def test_a_server_that_refuses_a_model_ends_the_attempt_with_what_comes_next(trained: Training) -> None:
    Path("mlruns").write_text("no directory, so that artifacts are not stored")
    with (
        MLflow("sqlite:///other.db", "digits", "refused", "runs/refused", {}, "refused") as tracker,
        pytest.raises(TrainyardError, match=r"does not register the model as 'refused': .*another attempt of the task"),
    ):
        tracking.register([tracker], trained.formats, trained.weights)


@pytest.mark.parametrize(
    ("formats", "name", "written"),
    [
        ((), "digits", ("mlflow",)),
        (("onnx",), "digits", ("onnx", "mlflow")),
        (("mlflow", "onnx"), "digits", ("mlflow", "onnx")),
        (("onnx",), None, ("onnx",)),
    ],
)
def test_a_registered_model_is_written_for_mlflow(
    formats: tuple[str, ...], name: str | None, written: tuple[str, ...]
) -> None:
    key = {"dag_id": "d", "run_id": "r", "task_id": "t", "directory": "/runs"}
    spec = TrainSpec.model_validate(
        {
            "task_key": key, "recipe": "a:b", "dataset": "d", "model": "m", "formats": formats,
            "trackers": ["tensorboard", {"name": "mlflow", "registered_model_name": name}],
        }
    )  # fmt: skip
    assert spec.all_formats == written


def test_uploads_may_take_longer_than_metrics_unless_the_environment_says_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for before, meanwhile in (("10", "600"), ("30", "30")):
        monkeypatch.setenv(TIMEOUT, before)
        with wait_for_uploads(HTTP_DEFAULTS[TIMEOUT]):
            assert os.environ[TIMEOUT] == meanwhile
        assert os.environ[TIMEOUT] == before
