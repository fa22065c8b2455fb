"""One rank of a gang: it meets the others, trains, and says how that went."""

from __future__ import annotations

import socket
import time
from datetime import timedelta
from statistics import mean
from typing import TYPE_CHECKING, Any

from trainyard import storage
from trainyard.schemas.events import EventLog
from trainyard.schemas.manifest import DatasetManifest
from trainyard.schemas.model_artifact import epoch_model_uri
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec
from trainyard.trainer.group.heartbeats import HeartbeatSender, MonitorAddress
from trainyard.trainer.loop.phases import CurrentPhase, Phases

if TYPE_CHECKING:
    from trainyard.trainer.loop.tracking import Tracker
from trainyard.trainer.group.outcome import Outcome, failure
from trainyard.trainer.group.rendezvous import join_group

AFTER_THE_BOARD = timedelta(minutes=1)
"""The driver's monitor says of a hang who is late; a collective's own timeout comes after it."""


def checkpoints(task_key: TaskKey) -> str:
    """Where the gang of a task keeps its checkpoints."""
    return storage.join(task_key.directory, "checkpoints", task_key.task)


def run(
    context: Any, text: str, manifests: list[str], application: str, start: int, monitor: MonitorAddress
) -> Outcome:
    """Train as the rank that the barrier task of `context` is, in the gang's `start`-th start (from 0).

    `manifests` are of the datasets that it trains on, as JSON. It tells the `monitor` where it is, and goes by its clock.
    """
    rank = context.partitionId()
    try:
        spec = TrainSpec.from_json(text)
        process = f"rank {rank}" if start == 0 else f"rank {rank}, start {start + 1}"
        here = CurrentPhase()
        with HeartbeatSender(monitor, rank, socket.gethostname(), here) as reporter:
            clock = reporter.clock
            events = EventLog(spec.task_key.directory, spec.task_key.task, process, rank, clock.behind_ns)
            events.instant("clock", behind_ms=clock.behind_ns / 1e6, error_ms=clock.error_ns / 1e6)
            try:
                read = [DatasetManifest.from_json(manifest) for manifest in manifests]
                found = _train(context, spec, read, application, events, here)
            finally:
                events.flush()
        return Outcome(rank, socket.gethostname(), time.time(), result=found)
    except Exception as error:
        return failure(rank, error)


def _train(
    context: Any, spec: TrainSpec, read: list[DatasetManifest], application: str, events: EventLog, here: CurrentPhase
) -> dict[str, Any]:
    here.enter("import")
    with events.span("import"):
        import torch.distributed as dist

        from trainyard.trainer.data.mixture import Portion
        from trainyard.trainer.loop.fit import fit
    here.enter("rendezvous")
    with events.span("rendezvous"):
        world = join_group(context, timedelta(minutes=spec.hang_minutes) + AFTER_THE_BOARD)
    manifest, *others = read
    try:
        fitted = fit(
            spec.recipe, recipe_params=spec.recipe_params, dataset=spec.dataset, model=spec.model,
            strategy=spec.strategy, world=world, ranks=spec.workers, manifest=manifest,
            mix=[Portion(m.dataset, m.share, found) for m, found in zip(spec.mix, others, strict=True)],
            phases=Phases(events, here), application=application, checkpoints=checkpoints(spec.task_key),
            trackers=_trackers(spec, manifest) if world.is_main else (), formats=spec.formats,
            epoch_models=spec.epoch_models,
            **spec.options.model_dump(),
        )  # fmt: skip
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    history = fitted.history
    return {
        "uri": spec.model,
        "weights_sha256": fitted.artifact.weights_sha256 if fitted.artifact else None,
        "dataset_hash": manifest.content_hash,
        "dataset_version": manifest.number,
        "metrics": fitted.metrics,
        "epochs": len(history.epochs),
        "best_epoch": history.best + 1,
        "epoch_models": [epoch_model_uri(spec.model, n + 1) for n in range(len(history.epochs))]
        if spec.epoch_models
        else [],
        "stopped_early": history.stopped_early,
        "workers": world.size,
        "bytes_sent": fitted.bytes_sent,
        "bottleneck": fitted.bottleneck,
        "formats": fitted.formats,
        "seconds": {
            name: mean(rank.seconds[name] for rank in fitted.phase_seconds) for name in fitted.phase_seconds[0].seconds
        },
    } | fitted.gpu


def _trackers(spec: TrainSpec, manifest: DatasetManifest) -> list[Tracker]:
    from trainyard.trainer.loop.tracking import MLflow, TensorBoard

    told = {"recipe", "recipe_params", "dataset", "mix", "workers", "min_workers", "strategy"}
    params = spec.model_dump(include=told) | spec.options.model_dump() | {"dataset_hash": manifest.content_hash}
    place = spec.task_key
    found: list[Tracker] = []
    if spec.tensorboard:
        found.append(TensorBoard(storage.join(place.directory, "tensorboard", place.task), params))
    if spec.mlflow:
        identity = storage.join(place.directory, place.task)
        found.append(MLflow(spec.mlflow, place.dag_id, f"{place.run_id} {place.task}", identity, params))
    return found
