"""The gang: ranks that start together in one Spark barrier stage, supervised by the driver."""

from __future__ import annotations

import json
import os
import re
import socket
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from trainyard.contract import manifest as manifests
from trainyard.contract import storage
from trainyard.contract.errors import TrainyardError, reason
from trainyard.contract.events import EventLog
from trainyard.contract.manifest import BatchManifest
from trainyard.contract.spec import TrainSpec

RENDEZVOUS = timedelta(minutes=5)
SLOTS_SECONDS = 120.0


@dataclass(frozen=True)
class Outcome:
    """What became of one rank. `symptom` marks a failure that another rank's failure explains."""

    rank: int
    host: str
    ended_at: float
    result: dict[str, Any] | None = None
    error: str | None = None
    traceback: str | None = None
    symptom: bool = False


def run(spark: Any, spec: TrainSpec, events: EventLog) -> dict[str, Any]:
    """Train on `spec.workers` ranks. Raises TrainyardError that names the rank that failed first."""
    context = spark.sparkContext
    with events.span("wait for slots"):
        _await_slots(context, spec)
    manifest = manifests.current(spec.batches).to_json()
    application, text = context.applicationId, spec.to_json()

    def rank(_: Iterator[int]) -> Iterator[Outcome]:
        return iter([_run_rank(text, manifest, application)])

    with events.span("gang", ranks=spec.workers):
        try:
            outcomes = context.parallelize(range(spec.workers), spec.workers).barrier().mapPartitions(rank).collect()
        except Exception as error:
            raise _lost(spec, error) from error
    return result(spec, outcomes)


def result(spec: TrainSpec, outcomes: list[Outcome]) -> dict[str, Any]:
    """Rank 0's result, or the failure that came first: not the broken connections that follow it."""
    failures = sorted((o for o in outcomes if o.error), key=lambda o: (o.symptom, o.ended_at))
    if failures:
        first = failures[0]
        raise TrainyardError(
            f"rank {first.rank} of {spec.workers} on {first.host} failed: {first.error}"
            + (f"\n{first.traceback}" if first.traceback else "")
        )
    led = next(o.result for o in outcomes if o.rank == 0)
    assert led is not None
    return led


def _run_rank(text: str, manifest: str, application: str) -> Outcome:
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    rank = context.partitionId()
    try:
        spec = TrainSpec.from_json(text)
        events = EventLog(spec.place.directory, spec.place.task, f"rank {rank}", rank)
        try:
            found = _train(context, spec, BatchManifest.from_json(manifest), application, events)
        finally:
            events.flush()
        return Outcome(rank, socket.gethostname(), time.time(), result=found)
    except Exception as error:
        told = reason(error)
        return Outcome(
            rank, socket.gethostname(), time.time(), error=told or f"{type(error).__name__}: {error}",
            traceback=None if told else traceback.format_exc(), symptom=_is_symptom(error),
        )  # fmt: skip


def _train(
    context: Any, spec: TrainSpec, manifest: BatchManifest, application: str, events: EventLog
) -> dict[str, Any]:
    with events.span("import"):
        import torch.distributed as dist

        from trainer.fit import fit
    with events.span("rendezvous"):
        world = _rendezvous(context, spec.workers)
    try:
        fitted = fit(
            spec.recipe, recipe_params=spec.recipe_params, batches=spec.batches, model=spec.model,
            strategy=spec.strategy, world=world, manifest=manifest, events=events, application=application,
            checkpoints=storage.join(spec.place.directory, "checkpoints", spec.place.task),
            **spec.options.model_dump(),
        )  # fmt: skip
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    history = fitted.history
    return {
        "uri": spec.model,
        "weights_sha256": fitted.bundle.weights_sha256 if fitted.bundle else None,
        "dataset_hash": manifest.content_hash,
        "metrics": fitted.metrics,
        "epochs": len(history.epochs),
        "best_epoch": history.best + 1,
        "stopped_early": history.stopped_early,
        "workers": spec.workers,
    }


def _rendezvous(context: Any, workers: int) -> Any:
    """Meet the other ranks: one exchange of addresses through the barrier, then the process group."""
    import torch
    import torch.distributed as dist

    from trainer.world import World, gpu_of

    rank = context.partitionId()
    host = os.environ.get("SPARK_LOCAL_IP") or context.getTaskInfos()[rank].address.split(":")[0]
    with socket.socket() as probe:
        probe.bind(("", 0))
        mine = {"host": host, "port": probe.getsockname()[1]}
        peers = [json.loads(message) for message in context.allGather(json.dumps(mine))]
    neighbours = [r for r in range(workers) if peers[r]["host"] == host]
    assigned = context.resources().get("gpu")
    addresses = assigned.addresses if assigned else []
    world = World(rank, workers, gpu_of(addresses, neighbours.index(rank), torch.cuda.device_count()))
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // len(neighbours)))
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
    if workers > 1:
        address = f"tcp://{peers[0]['host']}:{peers[0]['port']}"
        dist.init_process_group(world.backend, address, RENDEZVOUS, workers, rank)
    return world


def _await_slots(context: Any, spec: TrainSpec) -> None:
    """Spark would keep a gang that is too large waiting for ten minutes; say so instead."""
    scala = context._jsc.sc()
    profile = scala.resourceProfileManager().defaultResourceProfile()
    deadline = time.monotonic() + (0 if context.master.startswith("local") else SLOTS_SECONDS)
    while (slots := scala.maxNumConcurrentTasks(profile)) < spec.workers:
        if time.monotonic() > deadline:
            raise TrainyardError(
                f"workers={spec.workers} needs as many slots at once, but {context.master} offers {slots}. "
                f"Write workers={max(slots, 1)}, or give the application more (a master of local[{spec.workers}], "
                "or more executors)."
            )
        time.sleep(1)


def _is_symptom(error: BaseException) -> bool:
    text = str(error)
    return any(s in text for s in ("Connection closed by peer", "Connection reset by peer", "NCCL", "Broken pipe"))


def _lost(spec: TrainSpec, error: Exception) -> TrainyardError:
    """A rank's process ended without an outcome: killed, or out of memory."""
    text = str(error)
    task = re.search(r"barrier task ResultTask\(\d+, (\d+)\)", text)
    who = f"rank {task[1]} of {spec.workers}" if task else f"one of the {spec.workers} ranks"
    cause = next((line.strip() for line in text.splitlines() if "Exception" in line or "exit" in line), text[:300])
    return TrainyardError(
        f"{who} ended without a word: its process was killed, perhaps for memory, or crashed. Spark says: {cause}"
    )
