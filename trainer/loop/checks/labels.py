"""Check the labels of datasets before a training, and find what they demand of the losses of a recipe's heads."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from torch import nn

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import MISSING_CLASS, Column, DatasetManifest, Split
from trainyard.trainer.data.reading.jagged import mask_name
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.loss_kinds import (
    NEGATIVE_LOG_LIKELIHOOD,
    OF_CLASSES,
    get_function,
    get_ignored_label,
    get_name,
    get_option,
    is_any,
)
from trainyard.trainer.model.losses import count_batches_without_labels_as_zero, explain_invalid_labels
from trainyard.trainer.model.objective import Objective
from trainyard.trainer.model.recipe import Recipe

_FLOATS = ("halffloat", "float", "double")
"""The types of numbers in a dataset that are no integers."""


def build_objective(recipe: Recipe, manifests: Sequence[DatasetManifest]) -> Objective:
    """Return what a training of a recipe on some datasets minimizes.

    Args:
        recipe: The recipe.
        manifests: The dataset, and those that are mixed into it.
    """
    missing = {
        name: value
        for name in recipe.labels
        if (value := _find_missing(recipe.heads_by_name[name], manifests)) is not None
    }
    if recipe.step:
        return Objective(recipe, missing)
    weighed, max_classes = [], {}
    for name, head in recipe.heads_by_name.items():
        ignores = ignores_labels(head, manifests)
        of_classes = is_any(head.loss, OF_CLASSES)
        loss = get_function(head.loss)
        if isinstance(loss, nn.Module) and ignores:
            count_batches_without_labels_as_zero(loss)
        if (ignores or get_option(head.loss, "weight") is not None) if of_classes else name in missing:
            weighed.append(name)
        if of_classes and not recipe.transform:
            max_classes[name] = _find_max_class(head, manifests)
    return Objective(recipe, missing, weighed, max_classes)


def find_warnings(recipe: Recipe, manifests: Sequence[DatasetManifest]) -> list[str]:
    """Return what of a recipe may not do what its author expects with these datasets, a sentence each."""
    return (
        []
        if recipe.step
        else [text for head in recipe.heads_by_name.values() for text in _find_warnings(head, manifests)]
    )


def _find_warnings(head: Head, manifests: Sequence[DatasetManifest]) -> Iterator[str]:
    is_mean = get_option(head.loss, "reduction") == "mean"
    if is_mean and not is_any(head.loss, OF_CLASSES) and ignores_labels(head, manifests):
        yield (
            f"{get_name(head.loss)}(ignore_index={get_ignored_label(head.loss)}) may divide by the number of the other "
            "labels that it gets, but batches are averaged by their number of rows: the loss depends on workers and "
            "micro_batches. Compute it in step=, with a sum that is divided by the number of rows."
        )


def ignores_labels(head: Head, manifests: Sequence[DatasetManifest]) -> bool:
    """Return whether the loss of a head ignores labels that may occur, by their minimum and maximum, or nulls."""
    ignored = get_ignored_label(head.loss)
    if ignored is None or head.label is None:
        return False
    statistics = [split.statistics[head.label] for each in manifests for split in each.splits.values()]
    if ignored == MISSING_CLASS and any(labels.nulls for labels in statistics):
        return True
    return any(labels.min and min(labels.min) <= ignored <= max(labels.max) for labels in statistics)


def _find_missing(head: Head, manifests: Sequence[DatasetManifest]) -> float | None:
    """Return the value that stands for no label in a batch; None if each row has a label, or labels are no numbers."""
    assert head.label is not None
    column = manifests[0].column(head.label)
    statistics = [split.statistics[head.label] for each in manifests for split in each.splits.values()]
    has_nulls = any(labels.nulls for labels in statistics)
    if column.kind != "scalar":
        return None
    if not has_nulls:
        return None
    return math.nan if column.type in _FLOATS else MISSING_CLASS


def check_labels(path: str, recipe: Recipe, manifest: DatasetManifest, splits: Sequence[str]) -> None:
    """Check that the labels of some splits are valid for the recipe at `path`, by their statistics.

    Those of training that `transform` may change are checked for `classes` only.

    Raises:
        TrainyardError: The dataset does not have a label, a feature is null, or labels are out of range, are no numbers
            of classes, or have variable length without a step= of the recipe.
    """
    names = [column.name for column in manifest.columns]
    nullable = [column.name for column in manifest.columns if column.nullable and column.name in recipe.inputs]
    if nullable and any(split.statistics[nullable[0]].nulls for split in manifest.splits.values()):
        raise TrainyardError(
            f"recipe {path!r}: the feature {nullable[0]!r} is null in some rows, which only a label may be. Fill it in "
            "prepare.py, or drop these rows, and remove it from nullable= of the export."
        )
    for name, head in recipe.heads.items():
        if head.label not in names:
            raise TrainyardError(
                f"recipe {path!r}: the head {name!r} has the label {head.label!r}, which the dataset does not have; "
                f"its columns are {', '.join(names)}."
            )
    for head in recipe.heads_by_name.values():
        if head.label is not None:
            _check_labels(path, recipe, head, manifest.column(head.label), manifest, splits)


def _check_labels(
    path: str, recipe: Recipe, head: Head, column: Column, manifest: DatasetManifest, splits: Sequence[str]
) -> None:
    if not recipe.step and column.kind == "list":
        raise TrainyardError(
            f"recipe {path!r}: the rows of label {column.name!r} differ in length, and loss= gets no mask of their "
            f"padding. Write a step= that uses batch[{mask_name(column.name)!r}]."
        )
    if is_any(head.loss, OF_CLASSES) and column.nullable and get_ignored_label(head.loss) != MISSING_CLASS:
        raise TrainyardError(
            f"recipe {path!r}: {get_name(head.loss)} ignores the label {get_ignored_label(head.loss)}, but rows "
            f"without a label {column.name!r} have {MISSING_CLASS}. Remove ignore_index=, or fill nulls in prepare.py."
        )
    for name in splits:
        labels = _list_labels(head, manifest.split(name))
        if not labels:
            continue
        if head.classes is not None and not all(0 <= label < head.classes for label in labels):
            raise _classes_error(path, head, name, labels)
        is_changed = recipe.transform is not None and name == "train"
        if not recipe.step and name in ("train", "validation") and not is_changed:
            _check_labels_of_loss(path, head, column, name, labels)


def _check_labels_of_loss(path: str, head: Head, column: Column, split: str, labels: Collection[float]) -> None:
    """Check that the loss of a head takes the labels of a split."""
    loss, name = head.loss, get_name(head.loss)
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


def _find_max_class(head: Head, manifests: Sequence[DatasetManifest]) -> float:
    """Return the largest number of a class that the loss of a head gets; -1 if its labels are none."""
    assert head.label is not None
    if manifests[0].column(head.label).type in _FLOATS:
        return -1
    splits = [each.split("train") for each in manifests]
    splits += [split for name, split in manifests[0].splits.items() if name == "validation"]
    return max((label for split in splits for label in _list_labels(head, split)), default=-1)


def _list_labels(head: Head, split: Split) -> set[float]:
    """Return the labels of a split that the loss does not ignore: their extremes, if there are many."""
    assert head.label is not None
    statistics = split.statistics[head.label]
    if not statistics.min:
        return set()
    extremes = {min(statistics.min), max(statistics.max)}
    try:
        labels = {float(text) for text in statistics.values or ()}
    except ValueError:  # true and false
        labels = extremes
    return (labels or extremes) - {get_ignored_label(head.loss)}


def _classes_error(path: str, head: Head, split: str, labels: Collection[float]) -> TrainyardError:
    assert head.classes is not None
    more_classes = f", or write classes={int(max(labels)) + 1}" if min(labels) >= 0 else ""
    return TrainyardError(
        f"recipe {path!r} has classes={head.classes}, so labels must be 0 to {head.classes - 1}; "
        f"column {head.label!r} of split {split!r} has {min(labels):g} to {max(labels):g}. "
        f"Renumber the labels in prepare.py{more_classes}."
    )
