"""Trackers: the figures of each epoch for TensorBoard and MLflow, by their own libraries."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from trainyard import storage
from trainyard.errors import TrainyardError

RUN_TAG = "trainyard.run"


class Tracker(Protocol):
    """Follows a run from outside."""

    def epoch(self, number: int, figures: Mapping[str, float]) -> None:
        """Note what was measured in an epoch; the first is 1."""

    def end(self, succeeded: bool) -> None:
        """The run is over."""


class TensorBoard:
    """Event files for TensorBoard in the directory `uri`, which may be on any storage."""

    def __init__(self, uri: str, params: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("tensorboard", "tensorboard", error) from error
        self._uri = uri
        self._written = tempfile.TemporaryDirectory(prefix="trainyard-tensorboard-")
        self._writer = SummaryWriter(self._written.name)
        self._writer.add_text("parameters", f"```\n{json.dumps(dict(params), indent=1, default=str)}\n```")

    def epoch(self, number: int, figures: Mapping[str, float]) -> None:
        for name, value in figures.items():
            self._writer.add_scalar(name, value, number)
        self._publish()

    def end(self, succeeded: bool) -> None:
        self._writer.close()
        self._publish()
        self._written.cleanup()

    def _publish(self) -> None:
        self._writer.flush()
        for file in Path(self._written.name).iterdir():
            storage.replace(storage.join(self._uri, file.name), file.read_bytes())


class MLflow:
    """A run of MLflow's, on the tracking server at `uri`.

    `identity` names the training across restarts and tries: one that has not ended well is gone on with.
    """

    def __init__(self, uri: str, experiment: str, name: str, identity: str, params: Mapping[str, Any]) -> None:
        try:
            from mlflow.entities import Metric, Param
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise _missing("mlflow", "mlflow-skinny", error) from error
        self._metric = Metric
        try:
            self._client = MlflowClient(uri)
            told = [Param(key, str(value)) for key, value in params.items()]
            self._run = self._going_on(experiment, identity) or self._begun(experiment, name, identity, told)
        except MlflowException as error:
            raise TrainyardError(
                f"mlflow={uri!r}: the run cannot be tracked there: {error}. Write the URI of a tracking server, "
                "such as 'http://mlflow:5000'."
            ) from error

    def epoch(self, number: int, figures: Mapping[str, float]) -> None:
        now = int(1000 * time.time())
        self._client.log_batch(self._run, [self._metric(name, value, now, number) for name, value in figures.items()])

    def end(self, succeeded: bool) -> None:
        self._client.set_terminated(self._run, "FINISHED" if succeeded else "FAILED")

    def _going_on(self, experiment: str, identity: str) -> str | None:
        known = self._client.get_experiment_by_name(experiment)
        if known is None:
            return None
        for run in self._client.search_runs([known.experiment_id], f"tags.`{RUN_TAG}` = '{identity}'"):
            if run.info.status != "FINISHED":
                self._client.update_run(run.info.run_id, "RUNNING")
                return str(run.info.run_id)
        return None

    def _begun(self, experiment: str, name: str, identity: str, params: list[Any]) -> str:
        known = self._client.get_experiment_by_name(experiment)
        number = known.experiment_id if known else self._client.create_experiment(experiment)
        run = self._client.create_run(number, run_name=name, tags={RUN_TAG: identity})
        self._client.log_batch(run.info.run_id, params=params)
        return str(run.info.run_id)


def _missing(option: str, package: str, error: ImportError) -> TrainyardError:
    return TrainyardError(
        f"{option}: the Python that the gang runs with cannot import it ({error}). Install {package} there, or leave "
        f"{option} out."
    )
