"""Validate the options of a training before it starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json, to_json
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column, DatasetManifest, Split, Statistics
from trainyard.schemas.heads import name_metric
from trainyard.schemas.model_artifact import Normalization
from trainyard.schemas.specs.strategies import Strategy, StrategyOptions
from trainyard.schemas.specs.train import TrainOptions, refuse_combinations, refuse_in_loop
from trainyard.schemas.validation.complaints import complaints, unknown_options
from trainyard.trainer.data.mixture import Portion, compute_shares, merge_statistics
from trainyard.trainer.data.order import Order
from trainyard.trainer.data.reading.blocks import dtype
from trainyard.trainer.model.artifacts.weights import find_overlap
from trainyard.trainer.model.loss_kinds import get_function, get_name, get_option
from trainyard.trainer.model.network import Network, compute_normalization
from trainyard.trainer.model.recipe import Recipe


def parse_options(fields: dict[str, Any]) -> TrainOptions:
    """Return the options of the loop.

    Raises:
        TrainyardError: An option is unknown, or its value is invalid.
    """
    if clauses := unknown_options(fields, TrainOptions.model_fields):
        raise TrainyardError(f"fit: {'; '.join(clauses)}.")
    try:
        return TrainOptions(**fields)
    except ValidationError as error:
        raise TrainyardError(f"fit: {complaints(error)}.") from error


def parse_strategy(strategy: StrategyOptions | Mapping[str, Any] | str) -> StrategyOptions:
    """Return the options of a strategy.

    Args:
        strategy: A name, a dict of the name and options, or the options themselves.

    Raises:
        TrainyardError: The strategy or an option is unknown, or a value is invalid.
    """
    try:
        return TypeAdapter[StrategyOptions](Strategy).validate_python(strategy)
    except ValidationError as error:
        raise TrainyardError(f"fit: strategy {complaints(error)}.") from error


def parse_params(params: Mapping[str, Any], option: str = "recipe_params") -> dict[str, Any]:
    """Return the parameters of a recipe, or a loop, as JSON has them: tuples become lists, and keys strings.

    Numbers of NumPy, other than float64, are refused, because JSON does not have their types.

    Raises:
        TrainyardError: JSON does not have a value.
    """
    parsed: dict[str, Any] = {}
    for name, value in params.items():
        try:
            parsed |= from_json(to_json({name: value}))
        except ValueError as error:
            raise TrainyardError(
                f"fit: {option}[{name!r}]: {error}. Write values that JSON has: strings, numbers, lists and "
                "dicts; convert a number of NumPy with int() or float()."
            ) from error
    return parsed


def check_combination(strategy: StrategyOptions, options: TrainOptions) -> None:
    """Check that a strategy supports the options.

    Raises:
        TrainyardError: It does not.
    """
    try:
        refuse_combinations(strategy, options)
    except ValueError as error:
        raise TrainyardError(f"fit: {error}.") from error


def check_in_loop(strategy: StrategyOptions, options: TrainOptions, epoch_models: bool) -> None:
    """Check that a loop of the user's own has the options.

    Raises:
        TrainyardError: It does not.
    """
    try:
        refuse_in_loop(strategy, options, epoch_models)
    except ValueError as error:
        raise TrainyardError(f"fit: {error}.") from error


def compute_fingerprint(
    recipe: str,
    params: Mapping[str, Any],
    manifest: DatasetManifest,
    options: TrainOptions,
    mix: Sequence[Portion],
    strategy: StrategyOptions,
) -> str:
    """Return a hash of what two runs must have in common for one to resume from the other's checkpoint."""
    common = [recipe, params, manifest.content_hash, options.batch_size, options.seed, strategy.model_dump()]
    common += [options.bucket_by, options.balance, options.weight_by]
    common += [(portion.manifest.content_hash, portion.share) for portion in mix]
    return hashlib.sha256(json.dumps(common, sort_keys=True, default=str).encode()).hexdigest()


def build_normalization(
    recipe: Recipe, inputs: tuple[Column, ...], manifest: DatasetManifest, mix: Sequence[Portion]
) -> dict[str, Normalization]:
    """Return the normalization of the inputs, from the statistics of the training data."""
    if not recipe.normalize:
        return {}
    stored = tuple(column for column in inputs if column.name not in recipe.decode)
    manifests = (manifest, *(portion.manifest for portion in mix))
    splits, shares = [each.split("train") for each in manifests], compute_shares(mix)
    statistics = {column.name: _merge_statistics(column.name, splits, shares) for column in stored}
    return compute_normalization(statistics, stored, recipe.normalize)


def _merge_statistics(column: str, splits: Sequence[Split], shares: Sequence[float]) -> Statistics:
    """Return the statistics of a column over a mixture, whose datasets have `shares` of the rows.

    The values of a variable-length column are its elements, of which rows of one dataset may have more.
    """
    parts = [split.statistics[column] for split in splits]
    weights = [share * part.count / split.rows for part, split, share in zip(parts, splits, shares, strict=True)]
    return merge_statistics(parts, weights)


def complete_options(options: TrainOptions, recipe: Recipe, validates: bool) -> TrainOptions:
    """Return the options with a `monitor_mode`: by default "max" for a metric of which higher is better.

    Args:
        options: The options.
        recipe: The recipe, with the metrics.
        validates: Whether there is a validation split.

    Raises:
        TrainyardError: `monitor` is not a loss or a metric of the recipe, or the metric leaves open what is better.
    """
    monitor, metrics = options.monitor, recipe.metrics_by_name if validates else {}
    losses = ["loss", *(["validation_loss"] if validates else [])]
    heads = ["", *recipe.heads] if recipe.step is None else [""]
    names = [*(name_metric(head, loss) for head in heads for loss in losses), *metrics]
    if monitor not in names:
        without = " There is no validation split, so that the recipe's metrics are not computed."
        raise TrainyardError(
            f"monitor={monitor!r} is not a metric that the best epoch can be chosen by; these are "
            f"{', '.join(sorted(names))}. "
            f"Write one of them, or add it to the recipe's metrics.{'' if validates else without}"
        )
    is_higher_better = metrics[monitor].higher_is_better if monitor in metrics else False
    if is_higher_better is None and options.monitor_mode is None:
        raise TrainyardError(
            f"monitor={monitor!r}: the metric does not say whether higher is better (its higher_is_better is None); "
            "write monitor_mode='min' or 'max'."
        )
    mode = options.monitor_mode or ("max" if is_higher_better else "min")
    return options.model_copy(update={"monitor_mode": mode})


def check_recipe(path: str, recipe: Recipe, may_be_lazy: bool, of_loop: bool = False) -> None:
    """Check that all that the recipe at `path` trains is trained and saved.

    Args:
        path: The import path of the recipe.
        recipe: The recipe.
        may_be_lazy: Whether the first batch may give parameters their shapes: in one process without checkpoints.
        of_loop: Whether a loop of the user's own trains the model, so that the recipe needs no loss.

    Raises:
        TrainyardError: There is no loss, the model has a state that is no tensor or has no shape, the loss has
            parameters or is no mean, or a metric is a collection.
    """
    for name, head in recipe.heads_by_name.items():
        if not of_loop and recipe.step is None and (head.loss is None or head.label is None):
            of_head = f"head {name!r}: " if name else ""
            raise TrainyardError(
                f"recipe {path!r}: {of_head}set loss= (or classes=, for cross entropy) and label=, or a step= of your "
                "own that returns the loss. Only a loop= can do without."
            )
    parameters = [name for name, parameter in recipe.model.named_parameters() if is_lazy(parameter)]
    if parameters and (not may_be_lazy or any(is_lazy(buffer) for buffer in recipe.model.buffers())):
        raise TrainyardError(
            f"recipe {path!r}: the parameter {parameters[0]!r} of the model has no shape yet (a lazy module). Call the "
            "model with one row, such as torch.zeros(1, 8), before the recipe returns."
        )
    for name, metric in recipe.metrics_by_name.items():
        if isinstance(metric, nn.ModuleDict):
            raise TrainyardError(
                f"recipe {path!r}: metric {name!r} is a {type(metric).__name__}; an epoch has one number of each "
                "metric. Write its metrics into metrics= one by one."
            )
    others = [name for name, value in recipe.model.state_dict().items() if not isinstance(value, Tensor)]
    if others:
        raise TrainyardError(
            f"recipe {path!r}: {others[0]!r} in the state of the model is no tensor, and would not be saved with it. "
            "Make it a buffer (register_buffer)."
        )
    for head in recipe.heads_by_name.values():
        loss = get_function(head.loss)
        if isinstance(loss, nn.Module) and any(parameter.requires_grad for parameter in loss.parameters()):
            raise TrainyardError(
                f"recipe {path!r}: loss= has parameters, which would neither be trained nor saved. Make them a part of "
                "the model, and compute the loss in step=."
            )
        if get_option(head.loss, "reduction") == "sum":
            raise TrainyardError(
                f"recipe {path!r}: {get_name(head.loss)}(reduction='sum') is not a mean over rows, as the loop expects "
                "for averages over workers. Write reduction='mean', and a learning rate that is larger accordingly."
            )


def check_memory(path: str, recipe: Recipe, strategy: StrategyOptions, device: str) -> None:
    """Check that the memory of the parameters of the recipe at `path` is one that the strategy and the device keep.

    Raises:
        TrainyardError: Two parameters share memory, and the model is moved to a GPU, or sharded; or one is not
            contiguous, as the strategy requires.
    """
    if (device != "cpu" or strategy.OWN_MEMORY) and (overlap := find_overlap(recipe.model)):
        raise TrainyardError(
            f"recipe {path!r}: {overlap[0]!r} and {overlap[1]!r} are two parameters over one memory. On a GPU, and "
            "with strategy='fsdp', each gets a memory of its own, so that they would be trained apart. Use one "
            "parameter for both, and transpose or slice it in forward: functional.linear(x, self.encoder.weight.t())."
        )
    if strategy.CONTIGUOUS:
        for name, tensor in recipe.model.state_dict().items():
            if not tensor.is_contiguous():
                raise TrainyardError(
                    f"recipe {path!r}: {name!r} is a view that is not contiguous, which "
                    f"strategy={strategy.name!r} does not send. Write strategy='allreduce', or use a tensor of its own."
                )


def count_smallest_micro_batch(rows: int, batch: int, workers: int, micro_batches: int) -> int:
    """Return the number of rows of the smallest micro-batch of an epoch; a worker without rows computes one.

    Args:
        rows: The rows of the epoch.
        batch: The rows of a global batch, of which the last one has the rest.
        workers: The number of workers, among which a batch is split evenly.
        micro_batches: The largest number of micro-batches of a worker.
    """
    shares = {min(size, rows) // workers for size in (batch, rows % batch or batch)}
    return min(max(share // max(min(micro_batches, share), 1), 1) for share in shares)


def check_batch_norm(
    path: str,
    recipe: Recipe,
    network: Network,
    inputs: Sequence[Column],
    order: Order,
    workers: int,
    micro_batches: int,
) -> None:
    """Check that batch normalization gets more than one value in each micro-batch.

    If one of them has a single row, the network is applied to a row of zeros: that of an image has many values.

    Args:
        path: The import path of the recipe.
        recipe: The recipe.
        network: Its model behind the normalization.
        inputs: The feature columns.
        order: The order of the training split.
        workers: The number of workers.
        micro_batches: The largest number of micro-batches of a worker.

    Raises:
        TrainyardError: It gets one, which torch would refuse at the end of the first epoch.
    """
    norms = [m for m in network.modules() if isinstance(m, _BatchNorm) and not isinstance(m, nn.SyncBatchNorm)]
    if not norms or recipe.step or any(column.kind == "list" for column in inputs):
        return
    if count_smallest_micro_batch(order.rows, order.batch, workers, micro_batches) > 1:
        return
    row = {column.name: torch.from_numpy(np.zeros((1, *column.shape), dtype(column))) for column in inputs}
    buffers = {name: tensor.clone() for name, tensor in network.named_buffers()}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            functional_call(network.train(), buffers, (row,))
        except Exception as error:  # anything else may be due to the zeros
            if "more than 1 value per channel" in str(error):
                raise TrainyardError(
                    f"recipe {path!r}: with batch_size={order.batch}, {order.rows} rows and {workers} workers, a "
                    "micro-batch of a worker has one row, which batch normalization cannot normalize. Write a "
                    "batch_size= that leaves more rows for the last batch, fewer micro_batches=, or another "
                    "normalization in the recipe, such as nn.GroupNorm."
                ) from error


def check_extra_columns(path: str, recipe: Recipe, manifest: DatasetManifest) -> None:
    """Check that a dataset has the extra columns of the recipe at `path`.

    Raises:
        TrainyardError: It does not.
    """
    names = [column.name for column in manifest.columns]
    for name in recipe.extra_columns:
        if name not in names:
            raise TrainyardError(
                f"recipe {path!r}: extra_columns={list(recipe.extra_columns)} names the column {name!r}, which the "
                f"dataset does not have; its columns are {', '.join(names)}."
            )
