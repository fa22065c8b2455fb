"""Fit a recipe to a dataset: from a shell or notebook, under `torchrun`, or as one worker of a group.

>>> from trainyard.trainer import fit
>>> fit("digits.recipe:convnet", dataset="run/digits/dataset", model="run/digits/model", epochs=5)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from statistics import mean
from typing import Any, NamedTuple

import torch
from torch.nn.parameter import is_lazy

from trainyard.errors import TrainyardError
from trainyard.progress_bar import ProgressBar
from trainyard.schemas import model_artifact as artifacts
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import Column, DatasetManifest
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.schemas.version_suffix import split_version
from trainyard.trainer.checkpointing.checkpoints import Checkpoints
from trainyard.trainer.data.folds import hold_out
from trainyard.trainer.data.mixture import Portion
from trainyard.trainer.formats import export
from trainyard.trainer.loop.checks.first_rows import FirstRows
from trainyard.trainer.loop.checks.labels import build_objective, check_labels, find_warnings
from trainyard.trainer.loop.checks.options import (
    build_normalization,
    check_batch_norm,
    check_combination,
    check_extra_columns,
    check_in_loop,
    check_memory,
    check_recipe,
    complete_options,
    compute_fingerprint,
    parse_options,
    parse_params,
    parse_strategy,
)
from trainyard.trainer.loop.engine import train
from trainyard.trainer.loop.loaders import build_loaders
from trainyard.trainer.loop.model_writer import Job, ModelWriter
from trainyard.trainer.loop.own_loop import TrainingLoop, describe_loop, load_loop, train_with
from trainyard.trainer.loop.training import Training
from trainyard.trainer.measuring.bottleneck import Bottleneck, PhaseSeconds, describe_bottleneck
from trainyard.trainer.measuring.gpu_usage import GpuMonitor, build_reader
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.measuring.progress import Progress
from trainyard.trainer.measuring.tracking import Tracker
from trainyard.trainer.model import recipe as recipes
from trainyard.trainer.model import transfer
from trainyard.trainer.model.network import Network
from trainyard.trainer.run.history import History
from trainyard.trainer.strategies import build_strategy
from trainyard.trainer.strategies.base import Strategy
from trainyard.trainer.verification.check import ROWS, ModelCheck
from trainyard.trainer.world import World, init_world


@dataclass(frozen=True)
class FitResult:
    """The result of a training.

    Attributes:
        history: The metrics of each epoch.
        artifact: The model artifact that was written; None on workers other than rank 0.
        optimizers: The optimizers and schedules, as texts.
        parameters: The number of the model's parameters.
        rows: The rows of an epoch.
        bytes_sent: Bytes that this worker has sent to synchronize the model.
        phase_seconds: The seconds of all workers, by phase.
        bottleneck: What limits the speed of the training, and what would help.
        gpu: Mean utilization and maximum memory of this worker's GPU; empty without one.
        formats: The URIs of the further formats that were written.
        warnings: What went wrong without ending the training, a sentence each.
    """

    history: History
    artifact: ModelArtifact | None
    optimizers: tuple[str, ...]
    parameters: int
    rows: int
    bytes_sent: int
    phase_seconds: list[PhaseSeconds]
    bottleneck: Bottleneck
    gpu: dict[str, float]
    formats: dict[str, str]
    warnings: list[str]

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the best epoch."""
        return self.history.epochs[self.history.best]


def fit(
    recipe: str | None = None,
    *,
    dataset: str,
    model: str,
    recipe_params: Mapping[str, Any] | None = None,
    loop: str | TrainingLoop | None = None,
    loop_params: Mapping[str, Any] | None = None,
    start_from: str | None = None,
    strategy: StrategyOptions | Mapping[str, Any] | str = "allreduce",
    world: World | None = None,
    workers: int | None = None,
    manifest: DatasetManifest | None = None,
    mix: Sequence[Portion] = (),
    checkpoints: str | None = None,
    phases: Phases | None = None,
    trackers: Sequence[Tracker] = (),
    formats: Sequence[str] = (),
    epoch_models: bool = False,
    application: str = "",
    **options: Any,
) -> FitResult:
    """Train a recipe, or a loop of your own, on a dataset, and write the model.

    A training in this process alone shows a progress bar if standard error is a terminal.

    Args:
        recipe: The import path of the recipe, "module:name"; it trains on the splits "train" and "validation".
        dataset: The URI of the dataset.
        model: The URI of the model to write.
        recipe_params: The parameters of the recipe: values that JSON has. The recipe gets what the model artifact
            stores, in which tuples are lists and keys are strings.
        loop: Instead of a recipe, a function with a training loop of your own, or its import path. It gets a
            `trainyard.trainer.Run`.
        loop_params: Its further parameters: values that JSON has.
        start_from: The URI of a model whose weights the training begins with, instead of the recipe's `start_from`;
            `MODEL@1a2b` is the version whose weights have a sha256 that begins so. A loop begins with them in the first
            network of `run.model`.
        strategy: A name, a dict of the name and options, or an object of `trainyard.schemas.specs.strategies`.
        world: The workers, whose process group exists; by default those that `torchrun` started, or this process alone.
        workers: The full number of workers. A group that is smaller splits its batches into more micro-batches, which
            then have at most as many rows.
        manifest: The version of the dataset; the newest by default.
        mix: Other datasets, whose split "train" makes up a share of the rows of each epoch.
        checkpoints: A directory for checkpoints; a run that was interrupted resumes from there.
        phases: Measures the phases of the loop.
        trackers: Receive the metrics of each epoch, on rank 0. The caller ends them.
        formats: Further formats to write the model in (see `trainyard.trainer.formats`), beside its weights.
        epoch_models: Whether to write a model after each epoch as well.
        application: The id of the Spark application.
        options: The fields of `trainyard.schemas.specs.train.TrainOptions`, such as epochs and batch_size.

    Raises:
        TrainyardError: An option is invalid, the data does not match the recipe, or the loss diverged.
    """
    if (recipe is None) == (loop is None):
        raise TrainyardError("fit: write recipe= or loop=, and not both.")
    if (recipe_params and loop) or (loop_params and recipe):
        raise TrainyardError("fit: recipe_params are those of recipe=, and loop_params those of loop=.")
    phases = phases or Phases(None)
    with phases.importing():
        own_loop = load_loop(loop) if isinstance(loop, str) else loop
    with init_world(world) as world:
        parsed = parse_options(options)
        dataset, version = (dataset, manifest) if manifest else manifests.find(dataset)
        params = parse_params(recipe_params or {})
        if recipe:
            with phases.importing():
                params = recipes.add_categories(recipe, params, version.fitted)
        job = Job(
            recipe=recipe or describe_loop(loop), dataset=dataset, model=model, mix=mix, world=world,
            params=params if recipe else parse_params(loop_params or {}, "loop_params"),
            start_from=start_from and artifacts.pin(start_from), options=parsed, strategy=parse_strategy(strategy),
            application=application, manifest=hold_out(version, parsed.fold) if parsed.fold else version,
            phases=phases,
        )  # fmt: skip
        check_combination(job.strategy, job.options)
        if own_loop:
            check_in_loop(job.strategy, parsed, epoch_models)
        saved = _open_checkpoints(job, checkpoints) if checkpoints else None
        gpu = GpuMonitor(read, job.phases) if (read := build_reader(world.device)) else None
        full_size = workers or world.size
        bar = ProgressBar(lambda: job.phases.current.training, enabled=world.size == 1)
        with (
            closing(saved) if saved else nullcontext(),
            closing(build_strategy(job.strategy, world, parsed.precision)) as built_strategy,
        ):
            with gpu or nullcontext(), bar:
                if own_loop:
                    run, writer = train_with(own_loop, job.params, job, saved, trackers, full_size, formats)
                    trained = _Trained(writer, run.history, run.optimizers, run.rows, run.bytes_sent, [*run.warnings])
                else:
                    with job.phases.measure(Phase.SET_UP):
                        set_up = _set_up(job, built_strategy, saved, full_size, trackers, formats, epoch_models)
                    trained = _train_recipe(job, built_strategy, *set_up)
            phase_seconds = [
                PhaseSeconds(*of_worker)
                for of_worker in world.gather((world.rank, world.host, dict(job.phases.totals)))
            ]
            writer, history = trained.writer, trained.history
            with job.phases.measure(Phase.WRITE_MODEL):
                written, output = writer.write_weights(model), writer.apply()
        saved_artifact: ModelArtifact | None = None
        uris: dict[str, str] = {}
        if written and output:
            if saved:
                saved.check_is_newest_group()
            seconds = mean(sum(worker.seconds.values()) for worker in phase_seconds)
            saved_artifact, uris = writer.write(history, written, output, seconds, formats)
        return FitResult(
            history=history, artifact=saved_artifact, optimizers=tuple(trained.optimizers),
            parameters=writer.count_parameters(), rows=trained.rows, bytes_sent=trained.bytes_sent,
            phase_seconds=phase_seconds,
            bottleneck=describe_bottleneck(phase_seconds, job.strategy), gpu=gpu.usage if gpu else {}, formats=uris,
            warnings=[*trained.warnings, *(saved.warnings if saved else [])],
        )  # fmt: skip


class _Trained(NamedTuple):
    """What a training leaves behind, and what writes its model."""

    writer: ModelWriter
    history: History
    optimizers: list[str]
    rows: int
    bytes_sent: int
    warnings: list[str]


def _train_recipe(job: Job, strategy: Strategy[Any], run: Training, writer: ModelWriter) -> _Trained:
    history = train(run)
    warnings = [
        *find_warnings(run.recipe, job.manifests),
        *run.warnings,
        *strategy.find_warnings(job.options.epochs * run.train.order.steps),
    ]
    return _Trained(writer, history, run.optimizers, run.train.order.rows, strategy.bytes_sent, warnings)


def _open_checkpoints(job: Job, root: str) -> Checkpoints:
    params = job.params | ({"start_from": split_version(job.start_from)[0]} if job.start_from else {})
    fingerprint = compute_fingerprint(job.recipe, params, job.manifest, job.options, job.mix, job.strategy)
    with job.phases.measure(Phase.FIND_CHECKPOINT):
        return Checkpoints(
            root, fingerprint, job.application, job.world, job.options.keep_checkpoints,
            job.phases.current.report_progress,
        )  # fmt: skip


def _set_up(
    job: Job,
    strategy: Strategy[Any],
    checkpoints: Checkpoints | None,
    max_workers: int,
    trackers: Sequence[Tracker],
    formats: Sequence[str],
    epoch_models: bool,
) -> tuple[Training, ModelWriter]:
    """Build the model and the loaders, and check that they match."""
    world, options = job.world, job.options
    torch.manual_seed(options.seed)
    with job.phases.importing():
        recipe = recipes.load(job.recipe, job.params)
    recipe = transfer.replace_start(recipe, job.start_from)
    recipe = recipe.find_masks(column.name for column in job.manifest.columns)
    warnings = {*transfer.initialize(recipe, world.is_main), *transfer.compare_values(recipe, job.manifest.fitted)}
    check_recipe(job.recipe, recipe, may_be_lazy=world.size == 1 and checkpoints is None)
    check_memory(job.recipe, recipe, job.strategy, world.device.type)
    options = complete_options(options, recipe, "validation" in job.manifest.splits)
    check_extra_columns(job.recipe, recipe, job.manifest)
    check_labels(job.recipe, recipe, job.manifest, tuple(job.manifest.splits))
    for portion in job.mix:
        check_labels(job.recipe, recipe, portion.manifest, ("train",))
    train_loader, validation_loader = build_loaders(
        job.dataset, job.manifest, job.mix, recipe, options, world, job.phases.current.report_progress
    )
    inputs = tuple(train_loader.column(name) for name in recipe.inputs)
    labels = {name: train_loader.column(label) for name, label in recipe.labels.items()}
    export.check_formats(formats, inputs)
    normalization = build_normalization(recipe, inputs, job.manifest, job.mix)
    network = Network(recipe.model, inputs, normalization, recipe.keywords, recipe.heads)
    objective = build_objective(recipe, job.manifests)
    first_rows = FirstRows(objective, validation_loader or train_loader, validation_loader is not None)
    check = _build_check(job, network, inputs, first_rows, strategy.sharded)
    writer = ModelWriter(job, network, inputs, labels, normalization, strategy.sharded, check, warnings)
    progress = Progress(options.epochs, train_loader.order, world.is_main, job.phases, trackers)
    run = Training(
        objective=objective, network=network, options=options, world=world,
        strategy=strategy, train=train_loader, validation=validation_loader, phases=job.phases, progress=progress,
        micro_batches=options.micro_batches * math.ceil(max_workers / world.size), checkpoints=checkpoints,
        after_epoch=writer.write_epoch if epoch_models else None,
        unread_columns=tuple(column.name for column in job.manifest.columns if column.name not in recipe.columns),
        warnings=warnings,
    )  # fmt: skip
    check_batch_norm(job.recipe, recipe, network, inputs, train_loader.order, world.size, run.micro_batches)
    if not (checkpoints and checkpoints.newest) and not any(map(is_lazy, network.parameters())):
        writer.check_untrained(recipe, checkpoints is not None)
    return run, writer


def _build_check(
    job: Job, network: Network, inputs: tuple[Column, ...], first_rows: FirstRows, is_sharded: bool
) -> ModelCheck | None:
    """Return the check of written models, on the worker that writes them, and on all that it needs to apply one."""
    if not (job.world.is_main or is_sharded):
        return None
    recipe = first_rows.objective.recipe
    rows = first_rows.loader.read_first_rows(recipe.inputs, ROWS)
    return ModelCheck(job.recipe, recipe, network, inputs, rows, is_sharded, first_rows.check)
