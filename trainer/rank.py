"""One rank of a gang: it meets the others, trains, and says how that went."""

from __future__ import annotations

import json
import os
import socket
import time
import traceback
from dataclasses import dataclass
from datetime import timedelta
from statistics import mean
from typing import TYPE_CHECKING, Any, Literal

from trainer.board import Address, Reporter
from trainer.phases import Phases, Whereabouts
from trainyard.contract import storage
from trainyard.contract.bundle import of_epoch
from trainyard.contract.errors import reason
from trainyard.contract.events import EventLog
from trainyard.contract.manifest import BatchManifest
from trainyard.contract.spec import Place, TrainSpec

if TYPE_CHECKING:
    from trainer.tracking import Tracker

AFTER_THE_BOARD = timedelta(minutes=1)
"""The driver's board says of a hang who is late; a collective's own timeout comes after it."""

BROKEN = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "NCCL",
    "HorovodInternalError",
    "Horovod has been shut down",
)


@dataclass(frozen=True)
class Outcome:
    """What became of one rank.

    `ended` says how: it is done; it failed by itself; the connection to another rank broke, which that one's
    failure explains; or it was asked to end.
    """

    rank: int
    host: str
    ended_at: float
    ended: Literal["done", "failed", "cut off", "terminated"] = "done"
    result: dict[str, Any] | None = None
    error: str | None = None
    traceback: str | None = None

    def told(self, size: int) -> str:
        """The failure, addressed to the user, of a gang of `size` ranks."""
        message = f"rank {self.rank} of {size} on {self.host} failed: {self.error}"
        return message + (f"\n{self.traceback}" if self.traceback else "")


def failure(rank: int, error: BaseException) -> Outcome:
    """What became of a rank whose work raised `error`, which is being handled."""
    told = reason(error)
    return Outcome(
        rank, socket.gethostname(), time.time(), _ended(error),
        error=told or f"{type(error).__name__}: {error}", traceback=None if told else traceback.format_exc(),
    )  # fmt: skip


def checkpoints(place: Place) -> str:
    """Where the gang of a task keeps its checkpoints."""
    return storage.join(place.directory, "checkpoints", place.task)


def run(context: Any, text: str, manifests: list[str], application: str, start: int, board: Address) -> Outcome:
    """Train as the rank that the barrier task of `context` is, in the gang's `start`-th start (from 0).

    `manifests` are of the datasets that it trains on, as JSON. It tells the `board` where it is, and goes by its clock.
    """
    rank = context.partitionId()
    try:
        spec = TrainSpec.from_json(text)
        process = f"rank {rank}" if start == 0 else f"rank {rank}, start {start + 1}"
        here = Whereabouts()
        with Reporter(board, rank, socket.gethostname(), here) as reporter:
            clock = reporter.clock
            events = EventLog(spec.place.directory, spec.place.task, process, rank, clock.behind_ns)
            events.instant("clock", behind_ms=clock.behind_ns / 1e6, error_ms=clock.error_ns / 1e6)
            try:
                read = [BatchManifest.from_json(manifest) for manifest in manifests]
                found = _train(context, spec, read, application, events, here)
            finally:
                events.flush()
        return Outcome(rank, socket.gethostname(), time.time(), result=found)
    except Exception as error:
        return failure(rank, error)


def address(context: Any) -> str:
    """Where other ranks reach this one: a host."""
    own = context.getTaskInfos()[context.partitionId()].address
    return os.environ.get("SPARK_LOCAL_IP") or str(own.split(":")[0])


def _train(
    context: Any, spec: TrainSpec, read: list[BatchManifest], application: str, events: EventLog, here: Whereabouts
) -> dict[str, Any]:
    here.enter("import")
    with events.span("import"):
        import torch.distributed as dist

        from trainer.fit import fit
        from trainer.mixture import Portion
    here.enter("rendezvous")
    with events.span("rendezvous"):
        world = _rendezvous(context, timedelta(minutes=spec.hang_minutes) + AFTER_THE_BOARD)
    manifest, *others = read
    try:
        fitted = fit(
            spec.recipe, recipe_params=spec.recipe_params, batches=spec.batches, model=spec.model,
            strategy=spec.strategy, world=world, ranks=spec.workers, manifest=manifest,
            mix=[Portion(m.batches, m.share, found) for m, found in zip(spec.mix, others, strict=True)],
            phases=Phases(events, here), application=application, checkpoints=checkpoints(spec.place),
            trackers=_trackers(spec, manifest) if world.leads else (), formats=spec.formats,
            epoch_models=spec.epoch_models,
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
        "dataset_version": manifest.number,
        "metrics": fitted.metrics,
        "epochs": len(history.epochs),
        "best_epoch": history.best + 1,
        "epoch_models": [of_epoch(spec.model, n + 1) for n in range(len(history.epochs))] if spec.epoch_models else [],
        "stopped_early": history.stopped_early,
        "workers": world.size,
        "bytes_sent": fitted.bytes_sent,
        "limit": fitted.limit,
        "formats": fitted.formats,
        "seconds": {name: mean(rank.seconds[name] for rank in fitted.spent) for name in fitted.spent[0].seconds},
    } | fitted.gpu


def _trackers(spec: TrainSpec, manifest: BatchManifest) -> list[Tracker]:
    from trainer.tracking import MLflow, TensorBoard

    told = {"recipe", "recipe_params", "batches", "mix", "workers", "min_workers", "strategy"}
    params = spec.model_dump(include=told) | spec.options.model_dump() | {"dataset_hash": manifest.content_hash}
    place = spec.place
    found: list[Tracker] = []
    if spec.tensorboard:
        found.append(TensorBoard(storage.join(place.directory, "tensorboard", place.task), params))
    if spec.mlflow:
        identity = storage.join(place.directory, place.task)
        found.append(MLflow(spec.mlflow, place.dag_id, f"{place.run_id} {place.task}", identity, params))
    return found


def _rendezvous(context: Any, timeout: timedelta) -> Any:
    """Meet the other ranks: one exchange of addresses through the barrier, then the process group."""
    import torch
    import torch.distributed as dist

    from trainer.world import World, gpu_of

    rank = context.partitionId()
    tasks = context.getTaskInfos()
    host = address(context)
    with socket.socket() as probe:
        probe.bind(("", 0))
        mine = {"host": host, "port": probe.getsockname()[1]}
        peers = [json.loads(message) for message in context.allGather(json.dumps(mine))]
    neighbours = [r for r in range(len(tasks)) if peers[r]["host"] == host]
    assigned = context.resources().get("gpu")
    addresses = assigned.addresses if assigned else []
    gpu = gpu_of(addresses, neighbours.index(rank), torch.cuda.device_count())
    world = World(rank, len(tasks), gpu, host)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // len(neighbours)))
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
    if world.size > 1:
        leader = f"tcp://{peers[0]['host']}:{peers[0]['port']}"
        dist.init_process_group(world.backend, leader, timeout, world.size, rank)
    return world


def _ended(error: BaseException) -> Literal["failed", "cut off", "terminated"]:
    import torch.distributed as dist

    from trainer.loop import TerminatedError

    if isinstance(error, TerminatedError):
        return "terminated"
    if isinstance(error, dist.DistError) or any(sign in str(error) for sign in BROKEN):
        return "cut off"
    return "failed"
