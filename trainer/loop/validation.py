"""Validate the options of a training before it starts. Raises TrainyardError."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from trainyard.errors import TrainyardError
from trainyard.schemas.document import complaints
from trainyard.schemas.manifest import Column, DatasetManifest
from trainyard.schemas.model_artifact import Normalization
from trainyard.schemas.specs.strategies import Strategy, StrategyOptions
from trainyard.schemas.specs.train import TrainOptions, refuse_combinations
from trainyard.trainer.data.jagged import mask_name
from trainyard.trainer.data.mixture import Portion, compute_shares, merge_statistics
from trainyard.trainer.model.network import compute_normalization
from trainyard.trainer.model.recipe import Recipe


def parse_options(given: dict[str, Any]) -> TrainOptions:
    try:
        return TrainOptions(**given)
    except ValidationError as error:
        raise TrainyardError(f"fit: {complaints(error)}.") from error


def parse_strategy(given: StrategyOptions | Mapping[str, Any] | str) -> StrategyOptions:
    try:
        return TypeAdapter[StrategyOptions](Strategy).validate_python(given)
    except ValidationError as error:
        raise TrainyardError(f"fit: strategy {complaints(error)}.") from error


def check_combination(strategy: StrategyOptions, options: TrainOptions) -> None:
    try:
        refuse_combinations(strategy, options)
    except ValueError as error:
        raise TrainyardError(f"fit: {error}.") from error


def run_fingerprint(
    recipe: str,
    params: Mapping[str, Any],
    manifest: DatasetManifest,
    options: TrainOptions,
    mix: Sequence[Portion],
    strategy: StrategyOptions,
) -> str:
    """What two runs must have in common for one to go on from the other's checkpoint."""
    same = [recipe, params, manifest.content_hash, options.batch_size, options.seed, strategy.model_dump()]
    same += [options.bucket_by, options.balance, options.weight_by]
    same += [(portion.manifest.content_hash, portion.share) for portion in mix]
    return hashlib.sha256(json.dumps(same, sort_keys=True, default=str).encode()).hexdigest()


def input_normalization(
    recipe: Recipe, inputs: tuple[Column, ...], manifest: DatasetManifest, mix: Sequence[Portion]
) -> dict[str, Normalization]:
    """How inputs are normalized, from the statistics of what is trained on."""
    if not recipe.normalize:
        return {}
    measured = tuple(column for column in inputs if column.name not in recipe.decode)
    found = [read.split("train").statistics for read in (manifest, *(portion.manifest for portion in mix))]
    figures = {column.name: merge_statistics([each[column.name] for each in found], compute_shares(mix)) for column in measured}
    return compute_normalization(figures, measured, recipe.normalize)


def check_labels(path: str, recipe: Recipe, manifest: DatasetManifest, splits: Sequence[str]) -> None:
    if recipe.label and not recipe.step and manifest.column(recipe.label).kind == "list":
        raise TrainyardError(
            f"recipe {path!r}: the rows of label {recipe.label!r} differ in length, and loss= does not see which of "
            f"its elements are padding. Write a step= that uses batch[{mask_name(recipe.label)!r}]."
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
