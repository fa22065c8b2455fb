"""Fit a recipe to a dataset: from a shell or notebook, under `torchrun`, or as one rank of a gang.

>>> from trainer.fit import fit
>>> fit("digits.recipe:convnet", dataset="run/digits/dataset", model="run/digits/model", epochs=5)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from statistics import mean
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from trainyard.schemas import manifest as manifests
from trainyard.schemas import model_artifact as bundles
from trainyard.schemas.manifest import DatasetManifest
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.trainer.checkpointing.checkpoints import Checkpoints
from trainyard.trainer.data.mixture import Portion
from trainyard.trainer.formats import export as others
from trainyard.trainer.loop.bottleneck import PhaseSeconds, describe_bottleneck
from trainyard.trainer.loop.engine import Training, train
from trainyard.trainer.loop.gpu_usage import GpuMonitor, reader
from trainyard.trainer.loop.history import History
from trainyard.trainer.loop.loaders import build_loaders
from trainyard.trainer.loop.phases import Phases
from trainyard.trainer.loop.progress import Progress
from trainyard.trainer.loop.tracking import Tracker
from trainyard.trainer.loop.validation import (
    check_combination,
    check_labels,
    input_normalization,
    parse_options,
    parse_strategy,
    run_fingerprint,
)
from trainyard.trainer.model import artifact, transfer
from trainyard.trainer.model import recipe as recipes
from trainyard.trainer.model.network import Network
from trainyard.trainer.strategies import build_strategy
from trainyard.trainer.world import World, init_world


@dataclass(frozen=True)
class Fitted:
    """The best network's history; `bundle` is None on ranks other than 0.

    `bytes_sent` is what this rank has sent to others for the sake of the weights; `spent` are the seconds of all
    ranks, and `limit` says what limits the run, and what would help. `gpu` are the mean utilization and the
    most memory of this rank's GPU, if it has one. `formats` are the URIs of what was written beside the weights.
    """

    history: History
    artifact: ModelArtifact | None
    bytes_sent: int
    phase_seconds: list[PhaseSeconds]
    bottleneck: str
    gpu: dict[str, float]
    formats: dict[str, str]

    @property
    def metrics(self) -> dict[str, float]:
        """The figures of the best epoch."""
        return self.history.epochs[self.history.best]


def fit(
    recipe: str,
    *,
    dataset: str,
    model: str,
    recipe_params: Mapping[str, Any] | None = None,
    strategy: StrategyOptions | Mapping[str, Any] | str = "allreduce",
    world: World | None = None,
    ranks: int | None = None,
    manifest: DatasetManifest | None = None,
    mix: Sequence[Portion] = (),
    checkpoints: str | None = None,
    phases: Phases | None = None,
    trackers: Sequence[Tracker] = (),
    formats: Sequence[str] = (),
    epoch_models: bool = False,
    application: str = "",
    **options: Any,
) -> Fitted:
    """Train `recipe` (`module:name`) on the splits "train" and "validation" of `dataset`, write a bundle to `model`.

    `strategy` is a name, a dict of a name and options, or an object of `trainyard.contract.strategies`;
    `options` are the fields of TrainOptions. With `mix` epochs have rows of other datasets' splits "train" too, in
    the shares that their Portions say; validation has not. With a directory for `checkpoints` a run that was cut off
    goes on from there. `world` is given by a gang, whose process group is up; `ranks` is how many it has when it is
    whole. `trackers` are told of each epoch by rank 0. The model is written in `formats` (`trainer.formats`) too,
    beside its weights; with `epoch_models` that of each epoch is kept (`bundle.epoch_model_uri`). Raises TrainyardError.
    """
    with _followed(trackers), init_world(world) as here:
        wanted, how = parse_options(options), parse_strategy(strategy)
        check_combination(how, wanted)
        manifest = manifest or manifests.read_current(dataset)
        params = dict(recipe_params or {})
        phases = phases or Phases(None)
        kept = None
        if checkpoints:
            fingerprint = run_fingerprint(recipe, params, manifest, wanted, mix, how)
            with phases.phase("find checkpoint"):
                kept = Checkpoints(checkpoints, fingerprint, application, here, wanted.keep_checkpoints)
        gauge = GpuMonitor(read, phases) if (read := reader(here.device)) else None
        with closing(build_strategy(how, here)) as agreement:
            with phases.phase("set up"):
                torch.manual_seed(wanted.seed)
                made = recipes.load(recipe, params)
                transfer.initialize(made)
                check_labels(recipe, made, manifest, tuple(manifest.splits))
                for portion in mix:
                    check_labels(recipe, made, portion.manifest, ("train",))
                train_on, validate_on = build_loaders(dataset, manifest, mix, made, wanted, here)
                inputs = tuple(train_on.column(name) for name in made.inputs)
                others.check(formats, inputs)
                scaling = input_normalization(made, inputs, manifest, mix)
                network = Network(made.model, inputs, scaling)
                save = partial(
                    artifact.save, recipe=recipe, recipe_params=params, inputs=inputs,
                    label=train_on.column(made.label) if made.label else None, normalization=scaling,
                    dataset=dataset, manifest=manifest, mix=mix, workers=here.size, device=here.device.type,
                    application=application,
                )  # fmt: skip

                def keep(history: History) -> None:
                    with phases.phase("write model"):
                        weights = _whole(network)
                        if here.is_main:
                            number, seconds = len(history.epochs), sum(phases.totals.values())
                            where, figures = bundles.epoch_model_uri(model, number), history.epochs[-1]
                            artifact.publish(
                                where, save(where, weights, metrics=figures, epochs=number, seconds=seconds)
                            )

                run = Training(
                    recipe=made, network=network, options=wanted, world=here, strategy=agreement, train=train_on,
                    validation=validate_on, phases=phases,
                    progress=Progress(wanted.epochs, train_on.order, here.is_main, phases, trackers),
                    parts=wanted.micro_batches * math.ceil((ranks or here.size) / here.size), checkpoints=kept,
                    after_epoch=keep if epoch_models else None,
                )  # fmt: skip
            with gauge or nullcontext():
                history = train(run)
            weights = _whole(network)
            spent = here.gather(PhaseSeconds(here.rank, here.host, dict(phases.totals)))
        saved, written = None, {}
        if here.is_main:
            with phases.phase("write model"):
                saved = save(
                    model, weights, metrics=history.epochs[history.best], epochs=len(history.epochs),
                    seconds=mean(sum(rank.seconds.values()) for rank in spent),
                )  # fmt: skip
                written = others.beside(model, saved, formats)
                artifact.publish(model, saved)
        used = gauge.figures if gauge else {}
        return Fitted(history, saved, agreement.bytes_sent, spent, describe_bottleneck(spent, how), used, written)


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


def _whole(network: Network) -> dict[str, Tensor]:
    """The model's state on the CPU; all ranks take part where it is sharded."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    found = get_model_state_dict(network.model, options=options)
    return {name: tensor.detach().cpu() for name, tensor in found.items() if isinstance(tensor, Tensor)}
