"""Supervise a worker group: workers that start together in one Spark barrier stage.

A group that lost a worker is restarted with as many workers as there are slots. Training of a recipe resumes from the
last checkpoint; a script (`trainyard.trainer.group.script`) starts with the files that it has stored last.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from trainyard.errors import TrainyardError, UnavailableError, reason, summarize
from trainyard.files import storage, uris
from trainyard.files.retries import retry
from trainyard.schemas.datasets import versions
from trainyard.schemas.results import ModelResult
from trainyard.schemas.runs import checkpoint, run_record, script_checkpoint
from trainyard.schemas.runs.checkpoint import Checkpoint
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.runs.worker_progress import GroupProgress, ScriptProgress, TrainingProgress, WorkerProgress
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.group import worker as workers
from trainyard.trainer.group.datasets import choose_versions
from trainyard.trainer.group.executors import remove_executors
from trainyard.trainer.group.group_server import GroupServer
from trainyard.trainer.group.heartbeats import SILENCE_SECONDS, HeartbeatMonitor, parse_silence_seconds
from trainyard.trainer.group.outcome import LostWorkerError, MemoryKillError, Outcome, build_loss, get_result
from trainyard.trainer.group.slots import count_cores, wait_for_slots

HANG_CHECK_SECONDS = 1.0
PROGRESS_SECONDS = 3.0
LAST_PROGRESS_SECONDS = 10.0
"""How long the end of a training waits for progress that is being written: a storage may not answer for minutes."""

Worker = Callable[[Any, int, DriverAddress, int], Outcome]
"""The work of each worker: a function of its BarrierTaskContext, the number of restarts, the driver, and its cores."""
ReportProgress = Callable[[tuple[WorkerProgress, ...], TrainingProgress | ScriptProgress | None], None]
"""Publish the progress of the workers, and of the training."""


def run(spark: Any, spec: TrainSpec, events: EventLog) -> ModelResult:
    """Train on `spec.max_workers` workers at most, and return the result of rank 0.

    Args:
        spark: The SparkSession.
        spec: The training.
        events: The events of the driver.

    Raises:
        TrainyardError: A worker failed; the message names the first one that did.
    """
    context = spark.sparkContext
    root = workers.checkpoint_root(spec.task_key)
    retry(f"remove old checkpoints in {root}", partial(remove_finished_checkpoints, spec.task_key, root))
    spec, datasets = retry(f"read the manifest of {spec.dataset}", partial(choose_versions, spec, root))
    texts, application, text = [manifest.to_json() for _, manifest in datasets], context.applicationId, spec.to_json()

    def work(task: Any, start: int, driver: DriverAddress, cores: int) -> Outcome:
        return workers.run(task, text, texts, application, start, driver, cores)

    with ExitStack() as leases:
        for uri, manifest in datasets:
            leases.enter_context(versions.lease(uri, manifest.number, application))
        result = supervise(
            context, work, events, spec.min_workers, spec.max_workers, spec.max_restarts,
            lambda: _count_saved_updates(root, application), 60 * spec.hang_minutes, save_progress(spec.task_key),
        )  # fmt: skip
    return ModelResult(**result)


def save_progress(task_key: TaskKey) -> ReportProgress:
    """Return a function that stores the progress of a task's workers."""

    def save(workers: tuple[WorkerProgress, ...], training: TrainingProgress | ScriptProgress | None) -> None:
        GroupProgress(task_key=task_key, at=time.time(), workers=workers, training=training).save()

    return save


def supervise(
    context: Any,
    work: Worker,
    events: EventLog,
    min_workers: int,
    max_workers: int,
    max_restarts: int,
    count_saved_updates: Callable[[], int] = lambda: 0,
    hang_seconds: float = math.inf,
    report_progress: ReportProgress = lambda progress, training: None,
    describe_checkpoint: Callable[[int], str] = " from the checkpoint after {} updates".format,
) -> dict[str, Any]:
    """Run a worker group, and restart it when it loses a worker or hangs.

    Args:
        context: The SparkContext.
        work: The work of each worker.
        events: The events of the driver.
        min_workers: The minimum size of the group.
        max_workers: The maximum size of the group.
        max_restarts: How often the group is restarted without progress in between; not at all after a memory kill.
        count_saved_updates: Returns the optimizer steps in the newest checkpoint, which measure progress; of a script
            the number of the last checkpoint with other files than the one before.
        hang_seconds: The time without progress of any late worker after which the group is restarted.
        report_progress: Called every few seconds with the phase of each worker, and the progress of the training.
        describe_checkpoint: Returns from where a group restarts, by what `count_saved_updates` has returned.

    Returns:
        The result of rank 0, and "restarts", the number of restarts.

    Raises:
        TrainyardError: A worker failed; the message names the first one that did.
    """
    start, restarts_left, saved = 0, max_restarts, count_saved_updates()
    with _ProgressReports(report_progress) as reports:
        while True:
            with events.span(Phase.WAIT_FOR_SLOTS):
                size = wait_for_slots(context, min_workers, max_workers, restarted=start > 0)
            try:
                with events.span(Phase.WORKER_GROUP, workers=size):
                    return _run_group(context, size, work, start, hang_seconds, reports) | {"restarts": start}
            except LostWorkerError as error:
                last, saved = saved, _count_again(count_saved_updates, saved)
                if saved > last:
                    restarts_left = max_restarts
                elif isinstance(error, MemoryKillError):
                    restarts_left = 0
                if restarts_left == 0:
                    raise
                restarts_left -= 1
                start += 1
                events.instant("restart", reason=str(error))
                print(f"{error}\nRestarting the worker group{describe_checkpoint(saved) if saved else ''}.", flush=True)


def _run_group(
    context: Any, size: int, work: Worker, start: int, hang_seconds: float, reports: _ProgressReports
) -> dict[str, Any]:
    conf = context.getConf()
    server = GroupServer(conf.get("spark.driver.host"), conf.get("spark.driver.bindAddress"))
    monitor, address, cores = server.monitor, server.address, count_cores(context, size)

    def run_task(_: Iterator[int]) -> Iterator[Outcome]:
        from pyspark import BarrierTaskContext

        return iter([work(BarrierTaskContext.get(), start, address, cores)])

    with (
        server,
        reports.of(monitor),
        _FailureDetector(context, monitor, hang_seconds) as detector,
    ):
        try:
            outcomes = context.parallelize(range(size), size).barrier().mapPartitions(run_task).collect()
        except Exception as error:
            if causes := [failure for failure in monitor.get_failures() if failure.is_cause]:
                get_result(causes, size)
            if detector.problem:
                raise LostWorkerError(detector.problem) from error
            raise _translate(size, error) from error
    return get_result(outcomes, size)


class _ProgressReports:
    """Report the progress of one group after the other while the body of a `with` runs.

    One thread does it for all groups, so that the next one does not wait for a report that is being written. A failure
    is logged once, until a report succeeds again.

    Args:
        report_progress: Publishes the progress.

    Attributes:
        monitor: The heartbeats of the current group; None between two groups.
    """

    def __init__(self, report_progress: ReportProgress) -> None:
        self._report_progress = report_progress
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self.monitor: HeartbeatMonitor | None = None

    def __enter__(self) -> _ProgressReports:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(LAST_PROGRESS_SECONDS)

    @contextmanager
    def of(self, monitor: HeartbeatMonitor) -> Iterator[None]:
        """Report the progress of a group in the body."""
        self.monitor = monitor
        try:
            yield
        finally:
            self.monitor = None

    def _run(self) -> None:
        failed = False
        while not self._stopped.wait(PROGRESS_SECONDS):
            try:
                if monitor := self.monitor:
                    self._report_progress(monitor.get_progress(), monitor.get_training())
                    failed = False
            except Exception as error:  # each storage raises exceptions of its own
                if not failed:
                    print(f"the progress of the workers cannot be written now: {summarize(error)}", flush=True)
                failed = True


class _FailureDetector:
    """Cancel the Spark jobs of the body when the group hangs, or a worker is silent.

    Args:
        context: The SparkContext.
        monitor: The heartbeats of the group.
        hang_seconds: The time without progress that counts as a hang.

    Attributes:
        problem: The description of the hang or the silence.
    """

    def __init__(self, context: Any, monitor: HeartbeatMonitor, hang_seconds: float) -> None:
        self._context, self._monitor, self._hang_seconds = context, monitor, hang_seconds
        self._silence_seconds = parse_silence_seconds(context.getConf().get(SILENCE_SECONDS))
        self._stopped = threading.Event()
        self._tag = f"trainyard-{uuid.uuid4().hex}"
        self._thread = threading.Thread(target=self._run, name="hang detector", daemon=True)
        self.problem: str | None = None

    def __enter__(self) -> _FailureDetector:
        self._context.addJobTag(self._tag)
        self._context.setInterruptOnCancel(True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._context.removeJobTag(self._tag)

    def _run(self) -> None:
        while not self._stopped.wait(HANG_CHECK_SECONDS):
            silent = self._monitor.find_silent(self._silence_seconds)
            self.problem = self._describe_silence(silent) if silent else self._monitor.describe_hang(self._hang_seconds)
            if self.problem:
                try:
                    if silent:
                        remove_executors(self._context, self._tag, silent)
                finally:
                    self._context.cancelJobsWithTag(self._tag)
                return

    def _describe_silence(self, silent: Mapping[int, str]) -> str:
        workers = " and ".join(silent.values())
        return (
            f"no heartbeat arrived for {self._silence_seconds:g} s from {workers}: the node, its network or the "
            f"process has stopped. To survive longer interruptions, set {SILENCE_SECONDS} in conf"
        )


def _count_again(count_saved_updates: Callable[[], int], before: int) -> int:
    """Return the optimizer steps in the newest checkpoint; `before`, as if there was no progress, if it is unknown."""
    try:
        return count_saved_updates()
    except UnavailableError as error:
        print(f"the progress of the worker group is unknown: {error}", flush=True)
        return before


def _count_saved_updates(root: str, application: str) -> int:
    """Return the optimizer steps in the newest checkpoint that an application has written, 0 if there is none."""
    for _, updates, uri in retry(f"read {root}", lambda: checkpoint.list_checkpoints(root)):
        index = partial(Checkpoint.load, uris.join(uri, checkpoint.INDEX))
        try:
            if retry(f"read {uri}", index).application == application:
                return updates
        except UnavailableError:
            raise
        except (FileNotFoundError, TrainyardError):  # not committed, or of another version
            continue
    return 0


def remove_finished_checkpoints(task_key: TaskKey, root: str) -> None:
    """Remove the checkpoints of a successful run of this task: the task was cleared, and runs from the beginning.

    They are removed once. Those that exist afterwards are of the run since, which resumes from them.
    """
    finished = run_record.superseded_application(task_key) or _find_succeeded(task_key)
    removed = uris.join(root, checkpoint.REMOVED)
    if finished is None or (storage.exists(removed) and storage.read(removed).decode() == finished):
        return
    for _, _, uri in checkpoint.list_checkpoints(root):
        storage.remove(uri)  # the numbers of the groups stay, so that none of before counts as a later one
    storage.remove(uris.join(root, script_checkpoint.CONTENTS))
    storage.replace(removed, finished.encode())


def _find_succeeded(task_key: TaskKey) -> str | None:
    """Return the application of the newest run record if it has succeeded."""
    record = run_record.read_latest(task_key)
    return record.application if record and record.status == "succeeded" else None


def _translate(size: int, error: Exception) -> TrainyardError:
    """Return the error for a worker without an outcome: it raised its failure, was killed, or could not start."""
    if message := reason(error):
        return TrainyardError(message)
    text = str(error)
    if "Traceback (most recent call last)" in text:
        return TrainyardError(f"the workers could not start. Spark reports: {text}")
    return build_loss(size, text)
