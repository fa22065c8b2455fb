"""Trackers: send the metrics of each epoch to TensorBoard and MLflow, with their own libraries."""

from __future__ import annotations

import json
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from trainyard import storage
from trainyard.errors import TrainyardError

RUN_TAG = "trainyard.run"


class Tracker(ABC):
    """Receives the metrics of a run, which ends with the body of a `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(kind is None)

    @abstractmethod
    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an epoch, counted from 1."""

    @abstractmethod
    def end(self, succeeded: bool) -> None:
        """End the run."""


class TensorBoard(Tracker):
    """Write event files for TensorBoard.

    Args:
        uri: The directory of the files, on any storage.
        params: The parameters of the run.

    Raises:
        TrainyardError: TensorBoard is not installed.
    """

    def __init__(self, uri: str, params: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing_package_error("tensorboard", "tensorboard", error) from error
        self._uri = uri
        self._folder = tempfile.TemporaryDirectory(prefix="trainyard-tensorboard-")
        self._writer = SummaryWriter(self._folder.name)
        self._writer.add_text("parameters", f"```\n{json.dumps(dict(params), indent=1, default=str)}\n```")

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an epoch, counted from 1."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, number)
        self._publish()

    def end(self, succeeded: bool) -> None:
        """Close the event file."""
        self._writer.close()
        self._publish()
        self._folder.cleanup()

    def _publish(self) -> None:
        self._writer.flush()
        for file in Path(self._folder.name).iterdir():
            storage.replace(storage.join(self._uri, file.name), file.read_bytes())


class MLflow(Tracker):
    """Record a run on an MLflow tracking server.

    Args:
        uri: The URI of the server.
        experiment: The name of the experiment, which is created if it does not exist.
        name: The name of the run.
        identity: Identifies the training across restarts and attempts: its unfinished run is resumed.
        params: The parameters of the run.

    Raises:
        TrainyardError: MLflow is not installed, or the server does not accept the run.
    """

    def __init__(self, uri: str, experiment: str, name: str, identity: str, params: Mapping[str, Any]) -> None:
        try:
            from mlflow.entities import Metric, Param
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise _missing_package_error("mlflow", "mlflow-skinny", error) from error
        self._metric = Metric
        try:
            self._client = MlflowClient(uri)
            texts = [Param(key, str(value)) for key, value in params.items()]
            self._run = self._resume_run(experiment, identity) or self._create_run(experiment, name, identity, texts)
        except MlflowException as error:
            raise TrainyardError(
                f"mlflow={uri!r}: the run cannot be tracked there: {error}. Write the URI of a tracking server, "
                "for example 'http://mlflow:5000'."
            ) from error

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an epoch, counted from 1."""
        now = int(1000 * time.time())
        self._client.log_batch(self._run, [self._metric(name, value, now, number) for name, value in metrics.items()])

    def end(self, succeeded: bool) -> None:
        """Set the final status of the run."""
        self._client.set_terminated(self._run, "FINISHED" if succeeded else "FAILED")

    def _resume_run(self, experiment: str, identity: str) -> str | None:
        existing = self._client.get_experiment_by_name(experiment)
        if existing is None:
            return None
        for run in self._client.search_runs([existing.experiment_id], f"tags.`{RUN_TAG}` = '{identity}'"):
            if run.info.status != "FINISHED":
                self._client.update_run(run.info.run_id, "RUNNING")
                return str(run.info.run_id)
        return None

    def _create_run(self, experiment: str, name: str, identity: str, params: list[Any]) -> str:
        existing = self._client.get_experiment_by_name(experiment)
        number = existing.experiment_id if existing else self._client.create_experiment(experiment)
        run = self._client.create_run(number, run_name=name, tags={RUN_TAG: identity})
        self._client.log_batch(run.info.run_id, params=params)
        return str(run.info.run_id)


def _missing_package_error(option: str, package: str, error: ImportError) -> TrainyardError:
    return TrainyardError(
        f"{option}: the workers' Python environment cannot import it ({error}). Install {package} there, or remove "
        f"{option}."
    )
