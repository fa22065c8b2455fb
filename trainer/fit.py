"""Fit a recipe to a batch dataset: from a shell or notebook, or as one rank of a gang.

>>> from trainer.fit import fit
>>> fit("digits.recipe:convnet", batches="run/digits/batches", model="run/digits/model", epochs=5)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from trainer import bundle, checkpoint
from trainer import recipe as recipes
from trainer.cache import ShardCache, directory
from trainer.dataset import Dataset
from trainer.loader import Loader
from trainer.loop import History, Training, train
from trainer.network import Network, normalisation
from trainer.order import Order, window_rows
from trainer.phases import Phases
from trainer.recipe import Recipe
from trainer.strategies import choose
from trainer.world import World
from trainyard.contract import manifest as manifests
from trainyard.contract.bundle import ModelBundle
from trainyard.contract.errors import TrainyardError
from trainyard.contract.events import EventLog
from trainyard.contract.manifest import BatchManifest
from trainyard.contract.spec import TrainOptions


@dataclass(frozen=True)
class Fitted:
    """The best network's history; `bundle` is None on ranks other than 0."""

    history: History
    bundle: ModelBundle | None

    @property
    def metrics(self) -> dict[str, float]:
        """The figures of the best epoch."""
        return self.history.epochs[self.history.best]


class _Directory:
    def __init__(self, uri: str) -> None:
        self._uri = uri

    def save(self, epoch: int, state: dict[str, Any]) -> None:
        checkpoint.save(self._uri, epoch, state)


def fit(
    recipe: str,
    *,
    batches: str,
    model: str,
    recipe_params: Mapping[str, Any] | None = None,
    strategy: str = "allreduce",
    world: World | None = None,
    manifest: BatchManifest | None = None,
    checkpoints: str | None = None,
    events: EventLog | None = None,
    application: str = "",
    **options: Any,
) -> Fitted:
    """Train `recipe` (`module:name`) on the splits "train" and "validation" of `batches`, write a bundle to `model`.

    `options` are the fields of TrainOptions. `world` is given by a gang, whose process group is up.
    """
    chosen = TrainOptions(**options)
    world = world or World()
    manifest = manifest or manifests.current(batches)
    params = dict(recipe_params or {})
    phases = Phases(events)
    with phases.phase("set up"):
        torch.manual_seed(chosen.seed)
        made = recipes.load(recipe, params)
        _check_labels(recipe, made, manifest)
        cache = ShardCache(directory(), int(chosen.cache_gb * 2**30))
        data = Dataset(batches, manifest, "train", made.columns, cache=cache)
        inputs = tuple(manifest.column(name) for name in made.inputs)
        scaling = normalisation(data.statistics, inputs, made.normalise) if made.normalise else {}
        network = Network(made.model, inputs, scaling)
        validation = None
        if "validation" in manifest.splits:
            held_out = Dataset(batches, manifest, "validation", made.columns, cache=cache)
            validation = _loader(held_out, made, chosen, world, training=False)
        run = Training(
            recipe=made, network=network, options=chosen, world=world, strategy=choose(strategy, world),
            train=_loader(data, made, chosen, world), validation=validation, phases=phases,
            checkpoints=_Directory(checkpoints) if checkpoints else None,
        )  # fmt: skip
    history = train(run)
    if not world.leads:
        return Fitted(history, None)
    saved = bundle.save(
        model, network, recipe=recipe, recipe_params=params, inputs=inputs,
        label=manifest.column(made.label) if made.label else None, normalisation=scaling,
        dataset=batches, dataset_hash=manifest.content_hash, metrics=history.epochs[history.best],
        epochs=len(history.epochs), application=application,
    )  # fmt: skip
    return Fitted(history, saved)


def _loader(data: Dataset, recipe: Recipe, options: TrainOptions, world: World, training: bool = True) -> Loader:
    batch = options.batch_size
    if training and batch > data.rows:
        raise TrainyardError(
            f"batch_size={batch} is larger than the split {data.name!r}, which has {data.rows} rows. "
            f"Write batch_size={max(1, data.rows // 10)}, or export more rows."
        )
    if training and batch < world.size:
        raise TrainyardError(
            f"batch_size={batch} is the global batch, and smaller than the {world.size} ranks that share it. "
            f"Write batch_size={world.size} or more."
        )
    order = Order(data.blocks, min(batch, data.rows), options.seed, window_rows(batch, data.row_bytes), training)
    transform = recipe.transform if training else None
    return Loader(data, order, world.rank, world.size, transform, pin=world.device.type == "cuda")


def _check_labels(path: str, recipe: Recipe, manifest: BatchManifest) -> None:
    if recipe.classes is None or recipe.label is None:
        return
    for name, split in manifest.splits.items():
        figures = split.statistics[recipe.label]
        if min(figures.min) < 0 or max(figures.max) >= recipe.classes:
            raise TrainyardError(
                f"recipe {path!r} has classes={recipe.classes}, so labels must be 0 to {recipe.classes - 1}; "
                f"column {recipe.label!r} of split {name!r} holds {min(figures.min):g} to {max(figures.max):g}. "
                f"Renumber the labels in prepare.py, or write classes={int(max(figures.max)) + 1}."
            )
