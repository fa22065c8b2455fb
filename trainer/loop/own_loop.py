"""Train with a loop of the user's own: what `Run` needs of a dataset and its recipes."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from trainyard.errors import TrainyardError
from trainyard.schemas.validation.params import convert_texts
from trainyard.trainer.checkpointing.checkpoints import Checkpoints
from trainyard.trainer.data.loader import Loader, build_order
from trainyard.trainer.data.reading.cache import FOLDER, ShardCache
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.folders import name_folder
from trainyard.trainer.formats import export
from trainyard.trainer.loop.checks.labels import check_labels
from trainyard.trainer.loop.checks.options import (
    build_normalization,
    check_batch_norm,
    check_extra_columns,
    check_memory,
    check_recipe,
    parse_params,
)
from trainyard.trainer.loop.loaders import build_loaders
from trainyard.trainer.loop.model_writer import Job, ModelWriter
from trainyard.trainer.measuring.tracking import Tracker
from trainyard.trainer.model import recipe as recipes
from trainyard.trainer.model import transfer
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.run.models import Model
from trainyard.trainer.run.run import Run
from trainyard.trainer.run.signals.control_sync import Termination
from trainyard.trainer.user_code import import_object
from trainyard.trainer.verification.check import ROWS, ModelCheck

TrainingLoop = Callable[..., None]
"""A function that trains: it gets the `Run`, and parameters."""


def load_loop(path: str) -> TrainingLoop:
    """Return the function at `path` ("module:name"). Raises TrainyardError if it cannot be imported."""
    module, _, name = path.partition(":")
    if not (module and name):
        raise TrainyardError(f"loop={path!r} is not an import path. Write 'module:function'.")
    function = import_object("loop", path)
    if not callable(function):
        raise TrainyardError(f"loop {path!r} is a {type(function).__name__}; write a function of a Run.")
    return function  # type: ignore[no-any-return]


def describe_loop(loop: str | TrainingLoop | None) -> str:
    """Return the path of a loop, by which its checkpoints are recognized."""
    return loop if isinstance(loop, str) else f"{getattr(loop, '__module__', '')}:{getattr(loop, '__qualname__', '')}"


def train_with(
    loop: TrainingLoop,
    params: Mapping[str, Any],
    job: Job,
    checkpoints: Checkpoints | None,
    trackers: Sequence[Tracker],
    max_workers: int,
    formats: Sequence[str],
) -> tuple[Run, ModelWriter]:
    """Call a training loop, and return its run, and what writes the model that it has published.

    Args:
        loop: The function.
        params: Its parameters, beside the run.
        job: The dataset, the options and the workers.
        checkpoints: Where checkpoints are saved, if they are.
        trackers: Receive the metrics of each epoch.
        max_workers: The full number of workers.
        formats: Further formats to write the model in.

    Raises:
        TrainyardError: The loop is not valid, or the loss diverged.
        TerminatedError: A worker received SIGTERM.
    """
    options, world = job.options, job.world
    arguments = convert_texts("loop_params", loop, params)
    try:
        inspect.signature(loop).bind(None, **arguments)
    except TypeError as error:
        raise TrainyardError(
            f"loop_params={dict(params)} are not the parameters of the loop {describe_loop(loop)}: {error}. Write "
            "those that the function has beside the run."
        ) from error
    torch.manual_seed(options.seed)
    with Termination() as termination:
        run = Run(
            options=options, world=world, phases=job.phases, builder=_Builder(job, formats), termination=termination,
            checkpoints=checkpoints, trackers=trackers,
            micro_batches=options.micro_batches * math.ceil(max_workers / world.size), strategy=job.strategy,
        )  # fmt: skip
        try:
            loop(run, **arguments)
            run.close()
        finally:
            run.remove_hooks()
    built = run.published
    assert built
    export.check_formats(formats, built.inputs)
    check, is_sharded = None, run.is_sharded
    if world.is_main or is_sharded:
        rows = built.loader.read_first_rows(built.recipe.inputs, ROWS)
        check = ModelCheck(built.path, built.recipe, built.network, built.inputs, rows, is_sharded)
    writer = ModelWriter(
        replace(job, recipe=built.path, params=built.params), built.network, built.inputs, built.labels,
        built.normalization, is_sharded, check, run.warnings,
    )  # fmt: skip
    return run, writer


class _Builder:
    """Builds models and loaders for the dataset of a job."""

    def __init__(self, job: Job, formats: Sequence[str]) -> None:
        self._job, self._formats = job, formats
        self._start_from = job.start_from

    def build_model(self, path: str, params: Mapping[str, Any]) -> Model:
        """Return the model of a recipe, on the CPU."""
        job = self._job
        with job.phases.importing():
            parsed = recipes.add_categories(path, parse_params(params), job.manifest.fitted)
            recipe = recipes.load(path, parsed)
        start_from, self._start_from = self._start_from, None  # it is for the first network
        recipe = transfer.replace_start(recipe, start_from)
        recipe = recipe.find_masks(column.name for column in job.manifest.columns)
        warnings = transfer.initialize(recipe, job.world.is_main)
        warnings += transfer.compare_values(recipe, job.manifest.fitted)
        check_recipe(path, recipe, may_be_lazy=False, of_loop=True)
        check_memory(path, recipe, job.strategy, job.world.device.type)
        names = {column.name for column in job.manifest.columns}
        if missing := [name for name in recipe.inputs if name not in names]:
            raise TrainyardError(
                f"run.model({path!r}): features {missing[0]!r} is not a column of {job.dataset}, which has "
                f"{', '.join(sorted(names))}. Give a network of other inputs, such as noise, to run.prepare()."
            )
        check_extra_columns(path, recipe, job.manifest)
        check_labels(path, recipe, job.manifest, tuple(job.manifest.splits))
        loader = self._open(recipe)
        inputs = tuple(loader.column(name) for name in recipe.inputs)
        normalization = build_normalization(recipe, inputs, job.manifest, job.mix)
        network = Network(recipe.model, inputs, normalization, recipe.keywords, recipe.heads)
        labels = {name: loader.column(label) for name, label in recipe.labels.items()}
        return Model(path, parsed, recipe, network, inputs, labels, normalization, loader, warnings)

    def build_loader(self, split: str, recipe: Recipe | None, columns: Sequence[str], trains: bool) -> Loader:
        """Return the loader of a split, with the columns of a recipe, and further ones.

        Args:
            split: The name of the split.
            recipe: The recipe.
            columns: The further columns.
            trains: Whether rows are in the order of a training, or as they are stored.
        """
        job = self._job
        if split not in job.manifest.splits:
            raise TrainyardError(
                f"run.batches({split!r}): {job.dataset} has no such split; it has {', '.join(job.manifest.splits)}."
            )
        if recipe is None and not columns:
            raise TrainyardError("run.steps() without a run.model() needs columns=, the columns of a batch.")
        read = recipe or Recipe(model=nn.Identity(), features=tuple(columns))
        read = replace(read, extra_columns=tuple(dict.fromkeys((*read.extra_columns, *columns))), metrics={})
        check_extra_columns("run.steps(columns=)", read, job.manifest)
        if trains:
            on_progress = job.phases.current.report_progress
            return build_loaders(job.dataset, job.manifest, job.mix, read, job.options, job.world, on_progress)[0]
        return self._open(read, split)

    def check(self, models: Sequence[Model], loader: Loader) -> None:
        """Check before the training that models can be trained on the batches of a loader, and written.

        Raises:
            TrainyardError: A batch has a row that batch normalization refuses, or a model has no such format.
        """
        export.check_formats(self._formats, models[0].inputs if len(models) == 1 else ())
        for model in models:
            if any(parameter.requires_grad for parameter in model.network.parameters()):
                check_batch_norm(
                    model.path, model.recipe, model.network, model.inputs, loader.order, self._job.world.size,
                    self._job.options.micro_batches,
                )  # fmt: skip

    def _open(self, recipe: Recipe, split: str = "train") -> Loader:
        """Return a loader of a split in stored order."""
        job, options = self._job, self._job.options
        cache = ShardCache(name_folder(FOLDER), int(options.cache_gb * 2**30))
        reader = SplitReader(job.dataset, job.manifest, split, recipe.columns, cache=cache)
        order = build_order(reader, options.batch_size, options.seed, False, None, None)
        return Loader(
            reader, order, job.world.rank, job.world.size, pin=job.world.device.type == "cuda",
            sequences=recipe.sequences, decode=recipe.decode,
        )  # fmt: skip
