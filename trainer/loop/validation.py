"""Validate the options of a training before it starts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
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
from trainyard.schemas.manifest import Column, DatasetManifest, Split, Statistics
from trainyard.schemas.model_artifact import Normalization
from trainyard.schemas.specs.strategies import Strategy, StrategyOptions
from trainyard.schemas.specs.train import TrainOptions, refuse_combinations, refuse_in_loop
from trainyard.schemas.validation.complaints import complaints, unknown_options
from trainyard.trainer.data.mixture import Portion, compute_shares, merge_statistics
from trainyard.trainer.data.order import Order
from trainyard.trainer.data.reading.jagged import mask_name
from trainyard.trainer.data.reading.split_reader import dtype
from trainyard.trainer.model.loss_kinds import (
    NEGATIVE_LOG_LIKELIHOOD,
    OF_CLASSES,
    get_function,
    get_ignored_label,
    get_name,
    get_option,
    is_any,
)
from trainyard.trainer.model.losses import averages_over_weights, explain_invalid_labels
from trainyard.trainer.model.network import Network, compute_normalization
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.model.weights import find_overlap

_FLOATS = ("halffloat", "float", "double")
"""The types of numbers in a dataset that are no integers."""


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
    names = ["loss", *(["validation_loss"] if validates else []), *metrics]
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
    if not of_loop and recipe.step is None and (recipe.loss is None or recipe.label is None):
        raise TrainyardError(
            f"recipe {path!r}: set loss= (or classes=, for cross entropy) and label=, or a step= of your own that "
            "returns the loss. Only a loop= can do without."
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
    loss = get_function(recipe.loss)
    if isinstance(loss, nn.Module) and any(parameter.requires_grad for parameter in loss.parameters()):
        raise TrainyardError(
            f"recipe {path!r}: loss= has parameters, which would neither be trained nor saved. Make them a part of the "
            "model, and compute the loss in step=."
        )
    if get_option(recipe.loss, "reduction") == "sum":
        raise TrainyardError(
            f"recipe {path!r}: {get_name(recipe.loss)}(reduction='sum') is not a mean over rows, as the loop "
            "expects for averages over workers. Write reduction='mean', and a learning rate that is larger accordingly."
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


def find_warnings(recipe: Recipe, manifests: Sequence[DatasetManifest]) -> list[str]:
    """Return what of a recipe may not do what its author expects with these datasets, a sentence each."""
    is_mean = get_option(recipe.loss, "reduction") == "mean"
    if averages_over_weights(recipe) or not is_mean or not ignores_labels(recipe, manifests):
        return []
    return [
        f"{get_name(recipe.loss)}(ignore_index={get_ignored_label(recipe.loss)}) may divide by the number of the other "
        "labels that it gets, but batches are averaged by their number of rows: the loss depends on workers and "
        "micro_batches. Compute it in step=, with a sum that is divided by the number of rows."
    ]


def needs_weights(recipe: Recipe, manifests: Sequence[DatasetManifest]) -> bool:
    """Return whether micro-batches count by the weights of their labels: these differ, or some are ignored."""
    has_weights = get_option(recipe.loss, "weight") is not None
    return averages_over_weights(recipe) and (has_weights or ignores_labels(recipe, manifests))


def ignores_labels(recipe: Recipe, manifests: Sequence[DatasetManifest]) -> bool:
    """Return whether the loss of a recipe ignores labels that may occur, by their minimum and maximum."""
    ignored = get_ignored_label(recipe.loss)
    if ignored is None or recipe.label is None or recipe.step:
        return False
    statistics = [split.statistics[recipe.label] for each in manifests for split in each.splits.values()]
    return any(labels.min and min(labels.min) <= ignored <= max(labels.max) for labels in statistics)


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


def check_labels(path: str, recipe: Recipe, manifest: DatasetManifest, splits: Sequence[str]) -> None:
    """Check that the labels of some splits are valid for the recipe at `path`, by their statistics.

    Those of training that `transform` may change are checked for `classes` only.

    Raises:
        TrainyardError: Labels are out of range, are no numbers of classes, or have variable length without a step= of
            the recipe.
    """
    if recipe.label is None:
        return
    column = manifest.column(recipe.label)
    if not recipe.step and column.kind == "list":
        raise TrainyardError(
            f"recipe {path!r}: the rows of label {recipe.label!r} differ in length, and loss= gets no mask of their "
            f"padding. Write a step= that uses batch[{mask_name(recipe.label)!r}]."
        )
    for name in splits:
        labels = _list_labels(recipe, manifest.split(name))
        if not labels:
            continue
        if recipe.classes is not None and not all(0 <= label < recipe.classes for label in labels):
            raise _classes_error(path, recipe, name, labels)
        is_changed = recipe.transform is not None and name == "train"
        if not recipe.step and name in ("train", "validation") and not is_changed:
            _check_labels_of_loss(path, recipe, column, name, labels)


def _check_labels_of_loss(path: str, recipe: Recipe, column: Column, split: str, labels: Collection[float]) -> None:
    """Check that the loss of a recipe takes the labels of a split."""
    loss, name = recipe.loss, get_name(recipe.loss)
    are_floats = column.type in _FLOATS
    if is_any(loss, OF_CLASSES) and are_floats and (column.kind == "scalar" or is_any(loss, NEGATIVE_LOG_LIKELIHOOD)):
        raise TrainyardError(
            f"recipe {path!r}: {name} takes numbers of classes, and the label {column.name!r} has type {column.type}. "
            f"Write cast({column.name} as int) in prepare.py, or use a loss of numbers, such as MSELoss."
        )
    if not is_any(loss, OF_CLASSES) or are_floats:
        problem = explain_invalid_labels(loss, labels)
    else:
        problem = f"{name} takes numbers of classes from 0 on" if min(labels) < 0 else None
    if problem:
        raise TrainyardError(
            f"recipe {path!r}: {problem}, but column {column.name!r} of split {split!r} has {min(labels):g} to "
            f"{max(labels):g}. Change the labels in prepare.py, or use another loss."
        )


def find_max_class(recipe: Recipe, manifests: Sequence[DatasetManifest]) -> float:
    """Return the largest number of a class that the loss of a recipe gets; -1 if its labels are none, or may change."""
    if recipe.label is None or recipe.step or recipe.transform or not is_any(recipe.loss, OF_CLASSES):
        return -1
    if manifests[0].column(recipe.label).type in _FLOATS:
        return -1
    splits = [each.split("train") for each in manifests]
    splits += [split for name, split in manifests[0].splits.items() if name == "validation"]
    return max((label for split in splits for label in _list_labels(recipe, split)), default=-1)


def _list_labels(recipe: Recipe, split: Split) -> set[float]:
    """Return the labels of a split that the loss does not ignore: their extremes, if there are many."""
    assert recipe.label is not None
    statistics = split.statistics[recipe.label]
    if not statistics.min:
        return set()
    extremes = {min(statistics.min), max(statistics.max)}
    try:
        labels = {float(text) for text in statistics.values or ()}
    except ValueError:  # true and false
        labels = extremes
    return (labels or extremes) - {get_ignored_label(recipe.loss)}


def _classes_error(path: str, recipe: Recipe, split: str, labels: Collection[float]) -> TrainyardError:
    assert recipe.classes is not None
    more_classes = f", or write classes={int(max(labels)) + 1}" if min(labels) >= 0 else ""
    return TrainyardError(
        f"recipe {path!r} has classes={recipe.classes}, so labels must be 0 to {recipe.classes - 1}; "
        f"column {recipe.label!r} of split {split!r} has {min(labels):g} to {max(labels):g}. "
        f"Renumber the labels in prepare.py{more_classes}."
    )
