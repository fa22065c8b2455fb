"""Trackers: send the metrics of each epoch to TensorBoard and MLflow, with their own libraries."""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from trainyard.errors import TrainyardError, UnavailableError, summarize
from trainyard.files import storage, uris
from trainyard.files.retries import replace_file
from trainyard.schemas.specs.job import GroupSpec, TrackerOptions
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.trainer.measuring.model_registry import TIMEOUT, register_model, wait_for_uploads

RUN_TAG = "trainyard.run"
HTTP_DEFAULTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "10", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}
"""Rank 0 waits for the server while the other workers wait for rank 0; MLflow's own defaults take many minutes."""
PAUSE = 20
"""After a request without an answer no other follows for this many times as long: a server that is down costs 5 %."""
MAX_METRICS = 1000
"""The most values that MLflow takes in one request."""
MAX_NAME = 250
"""The most characters that MLflow takes in the name of a metric."""
BYTES_PER_SECOND = 50_000
"""How much of TensorBoard's file is written on average: it is written as a whole, so less often the larger it is."""


Point = tuple[int, Mapping[str, float]]
"""The metrics of an epoch, counted from 1, or of a step."""


class Tracker(ABC):
    """Receives the metrics of a run, which ends with the body of a `with`.

    Attributes:
        failed: Whether it raised an error, or did not answer in time: its run gets nothing more, and no end.
        pause: How many seconds of points it should get together, because of what its last call has cost.
    """

    failed: bool = False
    pause: float = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.finish(kind is None)

    def finish(self, succeeded: bool) -> None:
        """End the run, unless the tracker failed."""
        if not self.failed:
            self.end(succeeded)

    @abstractmethod
    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an epoch, counted from 1."""

    def epochs(self, points: Sequence[Point]) -> None:
        """Record the metrics of several epochs or steps."""
        for number, metrics in points:
            self.epoch(number, metrics)

    @abstractmethod
    def end(self, succeeded: bool) -> None:
        """End the run."""


def open_trackers(spec: GroupSpec, params: Mapping[str, Any]) -> list[Tracker]:
    """Return the trackers of a task, which rank 0 has.

    Args:
        spec: The training or the script.
        params: The parameters of the run.

    Raises:
        TrainyardError: A package is not installed, a server has no URI, or refuses the run.
    """
    trackers = list[Tracker]()
    with ExitStack() as unfinished:
        unfinished.callback(finish, trackers, succeeded=False)
        for options in spec.trackers:
            trackers.append(_open_tracker(options, spec.task_key, params))
        unfinished.pop_all()
    return trackers


def _open_tracker(options: TrackerOptions, key: TaskKey, params: Mapping[str, Any]) -> Tracker:
    if options.name == "tensorboard":
        return TensorBoard(uris.join(key.directory, "tensorboard", key.task), params)
    if not options.uri:
        raise TrainyardError(
            "trackers: 'mlflow' has no uri; write that of the server, for example {'name': 'mlflow', 'uri': "
            "'http://mlflow:5000'}."
        )
    return MLflow(
        options.uri, key.dag_id, f"{key.run_id} {key.task}", uris.join(key.directory, key.task), params,
        options.registered_model_name,
    )  # fmt: skip


def send(trackers: Iterable[Tracker], points: Sequence[Point]) -> None:
    """Send metrics to all trackers that have not failed. One that fails now does not end the training."""
    for tracker in trackers:
        if tracker.failed:
            continue
        try:
            tracker.epochs(points)
        except Exception as error:
            tracker.failed = True
            print(f"{type(tracker).__name__} failed, and gets no more metrics of this run: {error}", flush=True)


def register(trackers: Iterable[Tracker], formats: Mapping[str, str], weights: str) -> list[str]:
    """Register a model in the trackers that have a registered model, and return its versions.

    Args:
        trackers: The trackers.
        formats: The URI of the model by format.
        weights: The sha256 of its weights.

    Raises:
        TrainyardError: A server refuses the model.
        UnavailableError: A server does not answer.
    """
    registering = [each for each in trackers if isinstance(each, MLflow) and each.registered_model_name]
    return [each.register(formats["mlflow"], weights) for each in registering]


def finish(trackers: Iterable[Tracker], succeeded: bool) -> None:
    """End the runs of trackers. A server or storage that does not answer may take minutes, and is no failure."""
    for tracker in trackers:
        with suppress(Exception):
            tracker.finish(succeeded)


class TensorBoard(Tracker):
    """Write event files for TensorBoard.

    A storage that does not answer after an epoch costs nothing: the next epoch writes the whole file.

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
        self.epochs([(number, metrics)])

    def epochs(self, points: Sequence[Point]) -> None:
        """Record the metrics of several epochs or steps, and write the file."""
        for number, metrics in points:
            for name, value in metrics.items():
                self._writer.add_scalar(name, value, number)
        try:
            self._publish(storage.replace)
        except Exception as error:  # each file system raises exceptions of its own
            print(f"TensorBoard: epoch {points[-1][0]} is not written yet: {summarize(error)}", flush=True)

    def end(self, succeeded: bool) -> None:
        """Close the event file."""
        self._writer.close()
        self._publish(replace_file)
        self._folder.cleanup()

    def _publish(self, write: Callable[[str, bytes], None]) -> None:
        self._writer.flush()
        files = {file.name: file.read_bytes() for file in Path(self._folder.name).iterdir()}
        self.pause = sum(map(len, files.values())) / BYTES_PER_SECOND
        for name, data in files.items():
            write(uris.join(self._uri, name), data)


class MLflow(Tracker):
    """Record a run on an MLflow tracking server.

    MLflow has no characters but letters, digits, `_`, `-`, `.`, `:`, `/` and spaces in names of metrics, 250 at most,
    and names are paths without empty parts: `hit@10` is recorded as `hit_10`, or as `hit_10_2` if there is such a
    metric, and `/loss` as `loss`.

    While the server does not answer, a line is printed, and the metrics are sent after a later epoch or at the end. A
    request has 10 seconds and two retries, unless the environment sets MLFLOW_HTTP_REQUEST_TIMEOUT or
    MLFLOW_HTTP_REQUEST_MAX_RETRIES.

    Args:
        uri: The URI of the server.
        experiment: The name of the experiment, which is created if it does not exist.
        name: The name of the run.
        identity: Identifies the training across restarts and attempts: its unfinished run is resumed.
        params: The parameters of the run.
        registered_model_name: The registered model that `register` adds a version to.

    Raises:
        TrainyardError: MLflow is not installed, the URI is invalid, or the server refuses the run.
    """

    def __init__(
        self,
        uri: str,
        experiment: str,
        name: str,
        identity: str,
        params: Mapping[str, Any],
        registered_model_name: str | None = None,
    ) -> None:
        for variable, value in HTTP_DEFAULTS.items():
            os.environ.setdefault(variable, value)
        try:
            from mlflow.entities import Metric, Param
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise _missing_package_error("mlflow", "mlflow-skinny", error) from error
        self._metric = Metric
        self.registered_model_name, self._uri = registered_model_name, uri
        self._experiment, self._name, self._identity = experiment, name, identity
        self._run: str | None = None
        self._params = [Param(key, str(value)) for key, value in params.items()]
        self._names: dict[str, str] = {}
        self._unsent: list[Any] = []
        self._next_try = 0.0
        try:
            self._client = MlflowClient(uri)
            with self._log_if_unanswered("gets the metrics later"):
                self._send()
        except MlflowException as error:
            raise TrainyardError(
                f"MLflow at {uri!r}: the run cannot be tracked there: {error}. Write the URI of a tracking server, "
                "for example 'http://mlflow:5000'."
            ) from error

    def epoch(self, number: int, metrics: Mapping[str, float]) -> None:
        """Record the metrics of an epoch, counted from 1."""
        self.epochs([(number, metrics)])

    def epochs(self, points: Sequence[Point]) -> None:
        """Record the metrics of several epochs or steps, and send them."""
        now = int(1000 * time.time())
        self._unsent += [
            self._metric(self._find_name(name), value, now, number)
            for number, metrics in points
            for name, value in metrics.items()
        ]
        if time.monotonic() >= self._next_try:
            from mlflow.exceptions import MlflowException

            try:
                with self._log_if_unanswered("gets the metrics later"):
                    self._send()
            except MlflowException as error:  # the run gets those of later epochs, and an end
                self._unsent.clear()
                print(f"MLflow refuses the metrics of epoch {points[-1][0]}: {error}", flush=True)

    def register(self, directory: str, weights: str) -> str:
        """Register a model, and return the URI of its version.

        Args:
            directory: The URI of the model in MLflow's format.
            weights: The sha256 of its weights.

        Raises:
            TrainyardError: The server refuses the model.
            UnavailableError: The server or the storage does not answer.
        """
        from mlflow.exceptions import MlflowException

        assert self.registered_model_name
        try:
            with wait_for_uploads(HTTP_DEFAULTS[TIMEOUT]):
                return register_model(self._client, self._send(), self.registered_model_name, directory, weights)
        except (MlflowException, OSError) as error:
            kind = UnavailableError if _has_no_answer(error) else TrainyardError
            raise kind(
                f"MLflow at {self._uri!r} does not register the model as {self.registered_model_name!r}: {error}. The "
                "trained model is published; another attempt of the task registers it."
            ) from error

    def end(self, succeeded: bool) -> None:
        """Send what was not sent yet, and set the final status of the run."""
        with self._log_if_unanswered("misses the end of the run"):
            run = self._send()
            if not self.failed:
                self._client.set_terminated(run, "FINISHED" if succeeded else "FAILED")

    @contextmanager
    def _log_if_unanswered(self, consequence: str) -> Iterator[None]:
        """Print a line if the server does not answer a request of the body."""
        started = time.monotonic()
        try:
            yield
        except Exception as error:
            if not _has_no_answer(error):
                raise
            now = time.monotonic()
            self._next_try = now + PAUSE * (now - started)
            print(f"MLflow does not answer, and {consequence}: {error}", flush=True)

    def _send(self) -> str:
        """Send what was not sent yet, and return the id of the run."""
        if self._run is None:
            self._run = self._resume_run() or self._create_run()
        if self._params:
            self._client.log_batch(self._run, params=self._params)
            self._params = []
        while self._unsent and not self.failed:
            self._log(self._run, self._unsent[:MAX_METRICS])
        return self._run

    def _log(self, run: str, metrics: Sequence[Any]) -> None:
        """Send metrics; if the server refuses them, each name by itself, so that the others arrive."""
        from mlflow.exceptions import MlflowException

        try:
            self._client.log_batch(run, metrics)
        except MlflowException as error:
            if _has_no_answer(error):
                raise
            names = dict.fromkeys(metric.key for metric in metrics)
            if len(names) > 1:
                for name in names:
                    self._log(run, [metric for metric in metrics if metric.key == name])
                return
            print(f"MLflow refuses {next(iter(names))!r}: {error}", flush=True)
        done = set(map(id, metrics))
        self._unsent = [metric for metric in self._unsent if id(metric) not in done]

    def _find_name(self, metric: str) -> str:
        """Return the name of a metric in MLflow, which no other one of this run has."""
        if metric not in self._names:
            base, taken = _normalize_name(metric), set(self._names.values())
            suffixes = itertools.chain([""], (f"_{number}" for number in itertools.count(2)))
            candidates = (base[: MAX_NAME - len(suffix)] + suffix for suffix in suffixes)
            self._names[metric] = next(name for name in candidates if name not in taken)
        return self._names[metric]

    def _resume_run(self) -> str | None:
        """Return the id of the unfinished run, which has the parameters of its first attempt; None if there is none."""
        existing = self._client.get_experiment_by_name(self._experiment)
        if existing is None:
            return None
        for run in self._client.search_runs([existing.experiment_id], f"tags.`{RUN_TAG}` = '{self._identity}'"):
            if run.info.status != "FINISHED":
                self._client.update_run(run.info.run_id, "RUNNING")
                self._params = [] if run.data.params else self._params
                return str(run.info.run_id)
        return None

    def _create_run(self) -> str:
        existing = self._client.get_experiment_by_name(self._experiment)
        number = existing.experiment_id if existing else self._client.create_experiment(self._experiment)
        return str(self._client.create_run(number, run_name=self._name, tags={RUN_TAG: self._identity}).info.run_id)


def _normalize_name(metric: str) -> str:
    """Return a metric's name as MLflow takes it: a path that is normal, and begins with no `..`."""
    text = re.sub(r"[^\w\-./: ]", "_", metric)
    path = "/".join(part for part in text[:MAX_NAME].split("/") if part not in {"", ".", ".."})
    return re.sub(r"^\.\.[./]*", "", path) or "metric"


def _has_no_answer(error: BaseException) -> bool:
    """Return whether the cause of an error of MLflow is that the server cannot be reached, or is not available."""
    from requests.exceptions import ConnectionError, RetryError, Timeout

    link: BaseException | None = error
    while link is not None and not isinstance(link, ConnectionError | RetryError | Timeout):
        link = link.__cause__ or link.__context__
    return link is not None


def _missing_package_error(option: str, package: str, error: ImportError) -> TrainyardError:
    return TrainyardError(
        f"{option}: the workers' Python environment cannot import it ({error}). Install {package} there, or remove "
        f"{option}."
    )
