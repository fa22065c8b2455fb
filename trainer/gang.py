"""The gang: ranks that start together in one Spark barrier stage, supervised by the driver.

A gang that lost a rank starts again from its last checkpoint, with as many ranks as there is room for.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from trainer import rank as ranks
from trainer.rank import Outcome
from trainyard.contract import checkpoint, record, storage
from trainyard.contract import manifest as manifests
from trainyard.contract.checkpoint import Checkpoint
from trainyard.contract.errors import TrainyardError
from trainyard.contract.events import EventLog
from trainyard.contract.spec import TrainSpec

SLOTS_SECONDS = 120.0
ELASTIC_SECONDS = 30.0
"""How long a gang that may be smaller waits for room for the whole of it."""


class CutOffError(TrainyardError):
    """The gang ended for no fault of the user's code: what it did before can be gone on with."""


def run(spark: Any, spec: TrainSpec, events: EventLog) -> dict[str, Any]:
    """Train on `spec.workers` ranks. Raises TrainyardError that names the rank that failed first."""
    context = spark.sparkContext
    root = ranks.checkpoints(spec.place)
    _forget_finished(spec, root)
    manifest = manifests.current(spec.batches).to_json()
    application, text = context.applicationId, spec.to_json()
    starts, left, reached = 0, spec.restarts, _reached(root)
    while True:
        with events.span("wait for slots"):
            size = _await_slots(context, spec)
        try:
            with events.span("gang", ranks=size):
                return _once(context, size, text, manifest, application, starts) | {"restarts": starts}
        except CutOffError as error:
            before, reached = reached, _reached(root)
            left = spec.restarts if reached > before else left
            if left == 0:
                raise
            left -= 1
            starts += 1
            events.instant("restart", reason=str(error))
            print(f"{error}\nThe gang starts again, after step {reached} of the optimizer.", flush=True)


def _once(context: Any, size: int, text: str, manifest: str, application: str, start: int) -> dict[str, Any]:
    def rank(_: Iterator[int]) -> Iterator[Outcome]:
        from pyspark import BarrierTaskContext

        return iter([ranks.run(BarrierTaskContext.get(), text, manifest, application, start)])

    try:
        outcomes = context.parallelize(range(size), size).barrier().mapPartitions(rank).collect()
    except Exception as error:
        raise _lost(size, error) from error
    return result(outcomes)


def result(outcomes: list[Outcome]) -> dict[str, Any]:
    """Rank 0's result, or the failure that came first: not the broken connections that follow it.

    Raises CutOffError when no rank failed by itself.
    """
    order = ("failed", "terminated", "cut off")
    failures = sorted((o for o in outcomes if o.error), key=lambda o: (order.index(o.ended), o.ended_at))
    if failures:
        first = failures[0]
        message = f"rank {first.rank} of {len(outcomes)} on {first.host} failed: {first.error}"
        kind = TrainyardError if first.ended == "failed" else CutOffError
        raise kind(message + (f"\n{first.traceback}" if first.traceback else ""))
    led = next(o.result for o in outcomes if o.rank == 0)
    assert led is not None
    return led


def _await_slots(context: Any, spec: TrainSpec) -> int:
    """The ranks that there is room for.

    Spark would keep a gang that is too large waiting for ten minutes; this says so instead.
    """
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    least, begun = spec.min_workers or spec.workers, time.monotonic()
    patience = 0.0 if context.master.startswith("local") else SLOTS_SECONDS
    while (slots := scala.maxNumConcurrentTasks(profile)) < spec.workers:
        waited = time.monotonic() - begun
        if slots >= least and waited >= min(patience, ELASTIC_SECONDS):
            return int(slots)
        if waited > patience:
            raise TrainyardError(
                f"workers={spec.workers if least == spec.workers else (least, spec.workers)} needs as many slots at "
                f"once, but {context.master} offers {slots}. Write workers={max(slots, 1)}, or give the application "
                f"more (a master of local[{least}], or more executors)."
            )
        time.sleep(1)
    return spec.workers


def _reached(root: str) -> int:
    """How many steps of the optimizer the newest checkpoint holds."""
    for updates, _, uri in checkpoint.written(root):
        if storage.exists(storage.join(uri, checkpoint.INDEX)):
            return updates
    return 0


def _forget_finished(spec: TrainSpec, root: str) -> None:
    """Remove the checkpoints of a run of this task that has succeeded: the task was cleared, to be done anew."""
    done = record.newest(spec.place)
    if done is None or done.status != "succeeded":
        return
    for _, _, uri in checkpoint.written(root):
        index = storage.join(uri, checkpoint.INDEX)
        if storage.exists(index) and Checkpoint.load(index).saved_at > done.started_at + done.seconds:
            return
    storage.remove(root)


def _lost(size: int, error: Exception) -> TrainyardError:
    """A rank's process ended without an outcome: killed, or out of memory; or it could not even begin."""
    text = str(error)
    if "Traceback (most recent call last)" in text:
        return TrainyardError(f"the ranks could not begin. Spark says: {text}")
    task = re.search(r"barrier task ResultTask\(\d+, (\d+)\)", text)
    who = f"rank {task[1]} of {size}" if task else f"one of the {size} ranks"
    cause = next((line.strip() for line in text.splitlines() if "Exception" in line or "exit" in line), text[:300])
    return CutOffError(
        f"{who} ended without a word: its process was killed, perhaps for memory, or crashed. Spark says: {cause}"
    )
