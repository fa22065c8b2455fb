"""The gang: ranks that start together in one Spark barrier stage, supervised by the driver.

A gang that lost a rank starts again with as many ranks as there is room for. One that trains a recipe goes on from
its last checkpoint; one that runs a script (`trainer.script`) begins it anew.
"""

from __future__ import annotations

import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from trainyard import storage
from trainyard.errors import TrainyardError, reason
from trainyard.schemas import checkpoint, run_record, versions
from trainyard.schemas import manifest as manifests
from trainyard.schemas.checkpoint import Checkpoint
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.train import TrainSpec
from trainyard.schemas.worker_progress import GroupProgress, WorkerProgress
from trainyard.trainer.group import worker as ranks
from trainyard.trainer.group.heartbeats import HeartbeatMonitor, MonitorAddress
from trainyard.trainer.group.outcome import Outcome

WATCH_SECONDS = 1.0
PROGRESS_SECONDS = 3.0
SLOTS_SECONDS = 120.0
ELASTIC_SECONDS = 30.0
"""How long a gang that may be smaller waits for room for the whole of it."""

Rank = Callable[[Any, int, MonitorAddress], Outcome]
"""What each rank does, of its barrier task's context, the number of the gang's start (from 0), and its monitor."""
Tell = Callable[[tuple[WorkerProgress, ...]], None]
"""Tells others where the ranks are."""


class CutOffError(TrainyardError):
    """The gang ended for no fault of the user's code: what it did before can be gone on with."""


def run(spark: Any, spec: TrainSpec, events: EventLog) -> dict[str, Any]:
    """Train on `spec.workers` ranks. Raises TrainyardError that names the rank that failed first."""
    context = spark.sparkContext
    root = ranks.checkpoints(spec.task_key)
    _forget_finished(spec, root)
    found = [manifests.read_version(spec.dataset, spec.dataset_version, spec.dataset_since)]
    found += [manifests.read_version(mixed.dataset, mixed.version) for mixed in spec.mix]
    read = [spec.dataset, *(mixed.dataset for mixed in spec.mix)]
    texts, application, text = [each.to_json() for each in found], context.applicationId, spec.to_json()

    least = spec.min_workers or spec.workers

    def rank(task: Any, start: int, monitor: MonitorAddress) -> Outcome:
        return ranks.run(task, text, texts, application, start, monitor)

    def tell(progress: tuple[WorkerProgress, ...]) -> None:
        GroupProgress(task_key=spec.task_key, at=time.time(), workers=progress).save()

    with ExitStack() as pins:
        for uri, manifest in zip(read, found, strict=True):
            pins.enter_context(versions.lease(uri, manifest.number, application))
        return supervise(
            context, rank, events, least, spec.workers, spec.max_restarts, lambda: _reached(root),
            60 * spec.hang_minutes, tell,
        )  # fmt: skip


def supervise(
    context: Any,
    rank: Rank,
    events: EventLog,
    least: int,
    most: int,
    restarts: int,
    reached: Callable[[], int] = lambda: 0,
    hang_seconds: float = math.inf,
    tell: Tell = lambda progress: None,
) -> dict[str, Any]:
    """Let `least` to `most` ranks do `rank`. Returns the result of rank 0, and how often the gang started again.

    Where its ranks are is told every few seconds. It starts again after it lost a rank, or nothing went on in it for
    `hang_seconds`: `max_restarts` times at most as long as `reached`, the steps that are kept, is what it was. Raises
    TrainyardError that names the rank that failed first.
    """
    starts, left, kept = 0, restarts, reached()
    while True:
        with events.span("wait for slots"):
            size = _await_slots(context, least, most)
        try:
            with events.span("worker group", ranks=size):
                return _once(context, size, rank, starts, hang_seconds, tell) | {"restarts": starts}
        except CutOffError as error:
            before, kept = kept, reached()
            left = restarts if kept > before else left
            if left == 0:
                raise
            left -= 1
            starts += 1
            events.instant("restart", reason=str(error))
            after = f", after step {kept} of the optimizer" if kept else ""
            print(f"{error}\nThe gang starts again{after}.", flush=True)


def _once(context: Any, size: int, rank: Rank, start: int, hang_seconds: float, tell: Tell) -> dict[str, Any]:
    monitor = HeartbeatMonitor(context.getConf().get("spark.driver.host"))
    address = monitor.address

    def task(_: Iterator[int]) -> Iterator[Outcome]:
        from pyspark import BarrierTaskContext

        return iter([rank(BarrierTaskContext.get(), start, address)])

    with monitor, _told(monitor, tell), _Watch(context, lambda: monitor.stalled(hang_seconds)) as watch:
        try:
            outcomes = context.parallelize(range(size), size).barrier().mapPartitions(task).collect()
        except Exception as error:
            if watch.told:
                raise CutOffError(watch.told) from error
            raise _lost(size, error) from error
    return result(outcomes)


@contextmanager
def _told(monitor: HeartbeatMonitor, tell: Tell) -> Iterator[None]:
    """While the body runs, tell what stands on the monitor. When that cannot be told, training goes on untold."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(PROGRESS_SECONDS):
            try:
                tell(monitor.progress())
            except (OSError, RuntimeError) as error:
                print(f"where the ranks are cannot be told any more: {error}", flush=True)
                return

    threading.Thread(target=go_on, name="progress", daemon=True).start()
    try:
        yield
    finally:
        over.set()


class _Watch:
    """A context whose Spark jobs are cancelled when they hang; `told` is what `stalled` said then."""

    def __init__(self, context: Any, stalled: Callable[[], str | None]) -> None:
        self._context, self._stalled = context, stalled
        self._over = threading.Event()
        self._tag = f"trainyard-{uuid.uuid4().hex}"
        self.told: str | None = None

    def __enter__(self) -> _Watch:
        self._context.addJobTag(self._tag)
        self._context.setInterruptOnCancel(True)
        threading.Thread(target=self._look, name="watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._context.removeJobTag(self._tag)

    def _look(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            self.told = self._stalled()
            if self.told:
                self._context.cancelJobsWithTag(self._tag)
                return


def result(outcomes: list[Outcome]) -> dict[str, Any]:
    """Rank 0's result, or the failure that came first: not the broken connections that follow it.

    Raises CutOffError when no rank failed by itself.
    """
    order = ("failed", "terminated", "cut off")
    failures = sorted((o for o in outcomes if o.error), key=lambda o: (order.index(o.ended), o.ended_at))
    if failures:
        first = failures[0]
        kind = TrainyardError if first.ended == "failed" else CutOffError
        raise kind(first.told(len(outcomes)))
    led = next(o.result for o in outcomes if o.rank == 0)
    assert led is not None
    return led


def _await_slots(context: Any, least: int, most: int) -> int:
    """The ranks that there is room for.

    Spark would keep a gang that is too large waiting for ten minutes; this says so instead.
    """
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    begun = time.monotonic()
    patience = 0.0 if context.master.startswith("local") else SLOTS_SECONDS
    while (slots := scala.maxNumConcurrentTasks(profile)) < most:
        waited = time.monotonic() - begun
        if slots >= least and waited >= min(patience, ELASTIC_SECONDS):
            return int(slots)
        if waited > patience:
            raise TrainyardError(
                f"workers={most if least == most else (least, most)} needs as many slots at once, but {context.master} "
                f"offers {slots}. Write workers={max(slots, 1)}, or give the application more (a master of "
                f"local[{least}], or more executors)."
            )
        time.sleep(1)
    return most


def _reached(root: str) -> int:
    """How many steps of the optimizer the newest checkpoint holds."""
    for updates, _, uri in checkpoint.list_checkpoints(root):
        if storage.exists(storage.join(uri, checkpoint.INDEX)):
            return updates
    return 0


def _forget_finished(spec: TrainSpec, root: str) -> None:
    """Remove the checkpoints of a run of this task that has succeeded: the task was cleared, to be done anew."""
    done = run_record.read_latest(spec.task_key)
    if done is None or done.status != "succeeded":
        return
    for _, _, uri in checkpoint.list_checkpoints(root):
        index = storage.join(uri, checkpoint.INDEX)
        if storage.exists(index) and Checkpoint.load(index).saved_at > done.started_at + done.seconds:
            return
    storage.remove(root)


def _lost(size: int, error: Exception) -> TrainyardError:
    """A rank ended without an outcome: it raised its failure, or was killed, or could not even begin."""
    if told := reason(error):
        return TrainyardError(told)
    text = str(error)
    if "Traceback (most recent call last)" in text:
        return TrainyardError(f"the ranks could not begin. Spark says: {text}")
    task = re.search(r"barrier task ResultTask\(\d+, (\d+)\)", text)
    who = f"rank {task[1]} of {size}" if task else f"one of the {size} ranks"
    cause = next((line.strip() for line in text.splitlines() if "Exception" in line or "exit" in line), text[:300])
    return CutOffError(
        f"{who} ended without a word: its process was killed, perhaps for memory, or crashed. Spark says: {cause}"
    )
