"""Fit a recipe to a batch dataset: from a shell or notebook, under `torchrun`, or as one rank of a gang.

>>> from trainer.fit import fit
>>> fit("digits.recipe:convnet", batches="run/digits/batches", model="run/digits/model", epochs=5)
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from trainer import bundle, transfer
from trainer import formats as others
from trainer import recipe as recipes
from trainer.cache import ShardCache, directory
from trainer.checkpoint import Checkpoints
from trainer.dataset import Dataset
from trainer.gpu import Gauge, reader
from trainer.limits import Spent, sentence
from trainer.loader import Loader, arranged
from trainer.loop import History, Training, train
from trainer.mixture import Mixture, Portion, mixed, shares, statistics
from trainer.network import Network, normalisation
from trainer.phases import Phases
from trainer.progress import Progress
from trainer.ragged import mask
from trainer.recipe import Recipe
from trainer.strategies import choose
from trainer.tracking import Tracker
from trainer.weights import chosen
from trainer.world import World, joined
from trainyard.contract import bundle as bundles
from trainyard.contract import manifest as manifests
from trainyard.contract.bundle import ModelBundle, Normalisation
from trainyard.contract.document import complaints
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import BatchManifest, Column
from trainyard.contract.spec import TrainOptions, refuse_combinations
from trainyard.contract.strategies import Strategy, StrategyOptions


@dataclass(frozen=True)
class Fitted:
    """The best network's history; `bundle` is None on ranks other than 0.

    `bytes_sent` is what this rank has sent to others for the sake of the weights; `spent` are the seconds of all
    ranks, and `limit` says what limits the run, and what would help. `gpu` are the mean utilisation and the
    most memory of this rank's GPU, if it has one. `formats` are the URIs of what was written beside the weights.
    """

    history: History
    bundle: ModelBundle | None
    bytes_sent: int
    spent: list[Spent]
    limit: str
    gpu: dict[str, float]
    formats: dict[str, str]

    @property
    def metrics(self) -> dict[str, float]:
        """The figures of the best epoch."""
        return self.history.epochs[self.history.best]


def fit(
    recipe: str,
    *,
    batches: str,
    model: str,
    recipe_params: Mapping[str, Any] | None = None,
    strategy: StrategyOptions | Mapping[str, Any] | str = "allreduce",
    world: World | None = None,
    ranks: int | None = None,
    manifest: BatchManifest | None = None,
    mix: Sequence[Portion] = (),
    checkpoints: str | None = None,
    phases: Phases | None = None,
    trackers: Sequence[Tracker] = (),
    formats: Sequence[str] = (),
    epoch_models: bool = False,
    application: str = "",
    **options: Any,
) -> Fitted:
    """Train `recipe` (`module:name`) on the splits "train" and "validation" of `batches`, write a bundle to `model`.

    `strategy` is a name, a dict of a name and options, or an object of `trainyard.contract.strategies`;
    `options` are the fields of TrainOptions. With `mix` epochs have rows of other datasets' splits "train" too, in
    the shares that their Portions say; validation has not. With a directory for `checkpoints` a run that was cut off
    goes on from there. `world` is given by a gang, whose process group is up; `ranks` is how many it has when it is
    whole. `trackers` are told of each epoch by rank 0. The model is written in `formats` (`trainer.formats`) too,
    beside its weights; with `epoch_models` that of each epoch is kept (`bundle.of_epoch`). Raises TrainyardError.
    """
    with _followed(trackers), joined(world) as here:
        wanted, how = _options(options), _strategy(strategy)
        _refuse(how, wanted)
        manifest = manifest or manifests.current(batches)
        params = dict(recipe_params or {})
        phases = phases or Phases(None)
        kept = None
        if checkpoints:
            fits = _fingerprint(recipe, params, manifest, wanted, mix, how)
            with phases.phase("look for a checkpoint"):
                kept = Checkpoints(checkpoints, fits, application, here, wanted.keep_checkpoints)
        gauge = Gauge(read, phases) if (read := reader(here.device)) else None
        with closing(choose(how, here)) as agreement:
            with phases.phase("set up"):
                torch.manual_seed(wanted.seed)
                made = recipes.load(recipe, params)
                transfer.begin(made)
                _check_labels(recipe, made, manifest, tuple(manifest.splits))
                for portion in mix:
                    _check_labels(recipe, made, portion.manifest, ("train",))
                train_on, validate_on = _loaders(batches, manifest, mix, made, wanted, here)
                inputs = tuple(train_on.column(name) for name in made.inputs)
                others.check(formats, inputs)
                scaling = _scaling(made, inputs, manifest, mix)
                network = Network(made.model, inputs, scaling)
                save = partial(
                    bundle.save, recipe=recipe, recipe_params=params, inputs=inputs,
                    label=train_on.column(made.label) if made.label else None, normalisation=scaling,
                    dataset=batches, manifest=manifest, mix=mix, ranks=here.size, device=here.device.type,
                    application=application,
                )  # fmt: skip

                def keep(history: History) -> None:
                    with phases.phase("write the bundle"):
                        weights = _whole(network)
                        if here.leads:
                            number, seconds = len(history.epochs), sum(phases.totals.values())
                            where, figures = bundles.of_epoch(model, number), history.epochs[-1]
                            bundle.publish(where, save(where, weights, metrics=figures, epochs=number, seconds=seconds))

                run = Training(
                    recipe=made, network=network, options=wanted, world=here, strategy=agreement, train=train_on,
                    validation=validate_on, phases=phases,
                    progress=Progress(wanted.epochs, train_on.order, here.leads, phases, trackers),
                    parts=wanted.accumulate * math.ceil((ranks or here.size) / here.size), checkpoints=kept,
                    after_epoch=keep if epoch_models else None,
                )  # fmt: skip
            with gauge or nullcontext():
                history = train(run)
            weights = _whole(network)
            spent = here.gathered(Spent(here.rank, here.host, dict(phases.totals)))
        saved, written = None, {}
        if here.leads:
            with phases.phase("write the bundle"):
                saved = save(
                    model, weights, metrics=history.epochs[history.best], epochs=len(history.epochs),
                    seconds=mean(sum(rank.seconds.values()) for rank in spent),
                )  # fmt: skip
                written = others.beside(model, saved, formats)
                bundle.publish(model, saved)
        used = gauge.figures if gauge else {}
        return Fitted(history, saved, agreement.bytes_sent, spent, sentence(spent, how), used, written)


@contextmanager
def _followed(trackers: Sequence[Tracker]) -> Iterator[None]:
    """Tells the trackers how it ended."""
    succeeded = False
    try:
        yield
        succeeded = True
    finally:
        for tracker in trackers:
            with suppress(Exception):
                tracker.end(succeeded)


def _options(given: dict[str, Any]) -> TrainOptions:
    try:
        return TrainOptions(**given)
    except ValidationError as error:
        raise TrainyardError(f"fit: {complaints(error)}.") from error


def _strategy(given: StrategyOptions | Mapping[str, Any] | str) -> StrategyOptions:
    try:
        return TypeAdapter[StrategyOptions](Strategy).validate_python(given)
    except ValidationError as error:
        raise TrainyardError(f"fit: strategy {complaints(error)}.") from error


def _refuse(strategy: StrategyOptions, options: TrainOptions) -> None:
    try:
        refuse_combinations(strategy, options)
    except ValueError as error:
        raise TrainyardError(f"fit: {error}.") from error


def _fingerprint(
    recipe: str,
    params: Mapping[str, Any],
    manifest: BatchManifest,
    options: TrainOptions,
    mix: Sequence[Portion],
    strategy: StrategyOptions,
) -> str:
    """What two runs must have in common for one to go on from the other's checkpoint."""
    same = [recipe, params, manifest.content_hash, options.batch_size, options.seed, strategy.model_dump()]
    same += [options.bucket_by, options.balance, options.weight_by]
    same += [(portion.manifest.content_hash, portion.share) for portion in mix]
    return hashlib.sha256(json.dumps(same, sort_keys=True, default=str).encode()).hexdigest()


def _whole(network: Network) -> dict[str, Tensor]:
    """The model's state on the CPU; all ranks take part where it is sharded."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    found = get_model_state_dict(network.model, options=options)
    return {name: tensor.detach().cpu() for name, tensor in found.items() if isinstance(tensor, Tensor)}


def _loaders(
    batches: str, manifest: BatchManifest, mix: Sequence[Portion], recipe: Recipe, options: TrainOptions, world: World
) -> tuple[Loader, Loader | None]:
    """Of the splits "train" and, if there is one, "validation"."""
    cache = ShardCache(directory(), int(options.cache_gb * 2**30))

    held_out = None
    if "validation" in manifest.splits:
        validation = Dataset(batches, manifest, "validation", recipe.columns, cache=cache)
        held_out = _loader(validation, recipe, options, world, training=False)
    also = (options.weight_by,) if options.weight_by else ()
    columns = tuple(dict.fromkeys((*recipe.columns, *also)))
    return _loader(mixed(batches, manifest, "train", columns, mix, cache), recipe, options, world), held_out


def _loader(
    data: Dataset | Mixture, recipe: Recipe, options: TrainOptions, world: World, training: bool = True
) -> Loader:
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
    bucket_by = options.bucket_by if training else None
    weights = chosen(data, _balance(recipe, options), options.weight_by, world) if training else None
    order = arranged(data, batch, options.seed, training, bucket_by, weights)
    return Loader(
        data, order, world.rank, world.size, recipe.transform if training else None, world.device.type == "cuda",
        recipe.sequences, recipe.decode, recipe.augment if training else {}, weights,
    )  # fmt: skip


def _scaling(
    recipe: Recipe, inputs: tuple[Column, ...], manifest: BatchManifest, mix: Sequence[Portion]
) -> dict[str, Normalisation]:
    """How inputs are normalised, from the statistics of what is trained on."""
    if not recipe.normalise:
        return {}
    measured = tuple(column for column in inputs if column.name not in recipe.decode)
    found = [read.split("train").statistics for read in (manifest, *(portion.manifest for portion in mix))]
    figures = {column.name: statistics([each[column.name] for each in found], shares(mix)) for column in measured}
    return normalisation(figures, measured, recipe.normalise)


def _balance(recipe: Recipe, options: TrainOptions) -> str | None:
    """The label whose values are drawn equally often."""
    if options.balance and recipe.label is None:
        raise TrainyardError("balance=True needs a label in the recipe: its values are drawn equally often.")
    return recipe.label if options.balance else None


def _check_labels(path: str, recipe: Recipe, manifest: BatchManifest, splits: Sequence[str]) -> None:
    if recipe.label and not recipe.step and manifest.column(recipe.label).kind == "list":
        raise TrainyardError(
            f"recipe {path!r}: the rows of label {recipe.label!r} differ in length, and loss= does not see which of "
            f"its elements are padding. Write a step= that uses batch[{mask(recipe.label)!r}]."
        )
    if recipe.classes is None or recipe.label is None:
        return
    for name in splits:
        figures = manifest.split(name).statistics[recipe.label]
        if figures.min and (min(figures.min) < 0 or max(figures.max) >= recipe.classes):
            raise TrainyardError(
                f"recipe {path!r} has classes={recipe.classes}, so labels must be 0 to {recipe.classes - 1}; "
                f"column {recipe.label!r} of split {name!r} holds {min(figures.min):g} to {max(figures.max):g}. "
                f"Renumber the labels in prepare.py, or write classes={int(max(figures.max)) + 1}."
            )
