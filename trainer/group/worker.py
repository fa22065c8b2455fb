"""Run one worker of a group: connect to the others, train, and return the outcome."""

from __future__ import annotations

import platform
import socket
import time
from datetime import timedelta
from statistics import mean
from typing import TYPE_CHECKING, Any

from trainyard.errors import TrainyardError
from trainyard.files import uris
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainSpec
from trainyard.trainer.connections.channel import DriverAddress
from trainyard.trainer.connections.process_group import end_process_group
from trainyard.trainer.connections.rendezvous import join_group
from trainyard.trainer.folders import compile_privately
from trainyard.trainer.group.heartbeats import HeartbeatSender
from trainyard.trainer.group.outcome import Outcome, build_failure
from trainyard.trainer.measuring import tracking
from trainyard.trainer.measuring.phases import CurrentPhase, Phases
from trainyard.trainer.measuring.tracking import Tracker

if TYPE_CHECKING:
    from trainyard.trainer.loop.fit import FitResult
    from trainyard.trainer.world import World

COLLECTIVE_MARGIN = timedelta(minutes=1)
"""Collectives time out this long after the driver has detected a hang, because the driver can name the late worker."""


def checkpoint_root(task_key: TaskKey) -> str:
    """Return the directory of a task's checkpoints."""
    return uris.join(task_key.directory, "checkpoints", task_key.task)


def process_name(rank: int, start: int) -> str:
    """Return the name of a worker in the events: "worker 3", or "worker 3, start 2" after a restart."""
    return f"worker {rank}" if start == 0 else f"worker {rank}, start {start + 1}"


def run(
    context: Any, text: str, manifests: list[str], application: str, start: int, driver: DriverAddress, cores: int
) -> Outcome:
    """Train as one worker of a group.

    The outcome of a worker that was disconnected by another one, or terminated, is returned. One that fails by itself
    reports its failure and raises it, so that Spark ends the other workers, whatever they wait for.

    Args:
        context: The BarrierTaskContext of the worker.
        text: The TrainSpec as JSON.
        manifests: The manifests of the dataset and those mixed into it, as JSON.
        application: The id of the Spark application.
        start: How often the group was restarted.
        driver: Where the worker sends its heartbeats, and finds the other workers.
        cores: The cores of the worker, which are its threads.

    Raises:
        TrainyardError: This worker failed.
    """
    rank, host = context.partitionId(), socket.gethostname()
    spec, current = TrainSpec.from_json(text), CurrentPhase()
    with HeartbeatSender(driver, rank, host, current) as heartbeats:
        clock, process = heartbeats.clock, process_name(rank, start)
        events = EventLog(spec.task_key.directory, spec.task_key.task, process, rank, clock.behind_ns)
        events.instant("clock", behind_ms=clock.behind_ns / 1e6, error_ms=clock.error_ns / 1e6)
        trackers: list[Tracker] = []
        try:
            datasets = [DatasetManifest.from_json(manifest) for manifest in manifests]
            result = _train(context, driver, spec, datasets, application, events, current, cores, trackers)
            outcome = Outcome(rank, host, time.time(), result=result)
        except BaseException as error:  # also of sys.exit() in a recipe
            outcome = build_failure(rank, error, clock)
            heartbeats.report_failure(outcome)
        if trackers:  # after the report: a server or storage that is down may take minutes
            tracking.finish(trackers, outcome.error is None)
        end_process_group(abort=outcome.error is not None)
        events.close()
    if outcome.is_cause:
        raise TrainyardError(outcome.describe_failure(len(context.getTaskInfos())))
    return outcome


def _train(
    context: Any,
    driver: DriverAddress,
    spec: TrainSpec,
    datasets: list[DatasetManifest],
    application: str,
    events: EventLog,
    current: CurrentPhase,
    cores: int,
    trackers: list[Tracker],
) -> dict[str, Any]:
    compile_privately()
    current.enter(Phase.IMPORT)
    with events.span(Phase.IMPORT):
        from trainyard.trainer.data.mixture import Portion
        from trainyard.trainer.loop.fit import fit
    current.enter(Phase.RENDEZVOUS)
    with events.span(Phase.RENDEZVOUS):
        world = join_group(context, driver, timedelta(minutes=spec.hang_minutes) + COLLECTIVE_MARGIN, cores)
    manifest, *others = datasets
    if world.is_main:
        trackers += open_trackers(spec, manifest)
    result = fit(
        spec.recipe, recipe_params=spec.recipe_params, loop=spec.loop, loop_params=spec.loop_params,
        dataset=spec.dataset, model=spec.model, start_from=spec.start_from,
        strategy=spec.strategy, world=world, workers=spec.max_workers, manifest=manifest,
        mix=[Portion(mixed.dataset, mixed.share, other) for mixed, other in zip(spec.mix, others, strict=True)],
        phases=Phases(events, current), application=application, checkpoints=checkpoint_root(spec.task_key),
        trackers=trackers, formats=spec.all_formats,
        epoch_models=spec.epoch_models,
        **spec.options.model_dump(),
    )  # fmt: skip
    registered: list[str] = []
    if trackers and result.artifact:
        current.enter(Phase.WRITE_MODEL)
        registered = tracking.register(trackers, result.formats, result.artifact.weights_sha256)
    return _build_result(spec, manifest, world, result) | {"registered_models": registered}


def _build_result(spec: TrainSpec, manifest: DatasetManifest, world: World, result: FitResult) -> dict[str, Any]:
    history = result.history
    return {
        "uri": spec.model,
        "weights_sha256": result.artifact.weights_sha256 if result.artifact else None,
        "dataset_hash": manifest.content_hash,
        "dataset_version": manifest.number,
        "metrics": result.metrics,
        "epochs": len(history.epochs),
        "best_epoch": history.best + 1,
        "epoch_models": history.models,
        "stopped_early": history.stopped_early,
        "workers": world.size,
        "optimizers": result.optimizers,
        "parameters": result.parameters,
        "rows": result.rows,
        **_describe_machine(world),
        "bytes_sent": result.bytes_sent,
        "bottleneck": str(result.bottleneck),
        "limited_by": result.bottleneck.limited_by,
        "advice": result.bottleneck.advice,
        "formats": result.formats,
        "warnings": result.warnings,
        "seconds": {
            name: mean(worker.seconds[name] for worker in result.phase_seconds)
            for name in result.phase_seconds[0].seconds
        },
    } | result.gpu


def _describe_machine(world: World) -> dict[str, str]:
    """Return what the training ran on."""
    import torch

    device = torch.cuda.get_device_name(world.device) if world.device.type == "cuda" else "CPU"
    return {"software": f"Python {platform.python_version()}, torch {torch.__version__}", "device": device}


def open_trackers(spec: TrainSpec, manifest: DatasetManifest) -> list[Tracker]:
    """Return the trackers of a training, which rank 0 has.

    Args:
        spec: The training.
        manifest: Its dataset.

    Raises:
        TrainyardError: A package is not installed, or a server refuses the run.
    """
    fields = {"recipe", "recipe_params", "loop", "loop_params", "dataset", "mix", "workers", "strategy"}
    params = spec.model_dump(include=fields) | spec.options.model_dump() | {"dataset_hash": manifest.content_hash}
    return tracking.open_trackers(spec, params)
