"""Fit a dataset on its training rows, or find what was fitted for its earlier versions."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from pyspark.sql import DataFrame

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import get_column
from trainyard.etl.fitting.vocabulary import find_vocabularies
from trainyard.files import uris
from trainyard.schemas.datasets import fitted_state, manifest
from trainyard.schemas.datasets.fitted_state import FittedState
from trainyard.schemas.datasets.manifest import DatasetManifest, fold_name
from trainyard.schemas.specs.categories import Category
from trainyard.schemas.specs.export import ExportSpec

TRAIN = "train"


def find_state(spec: ExportSpec) -> FittedState | None:
    """Return what was fitted for the dataset of an export, None if the export has to fit it.

    Raises:
        TrainyardError: Other partitions stay, and were fitted with other options.
    """
    base = manifest.read_latest(spec.dataset) if spec.fit_options else None
    if base is None:
        return None
    state = read_state(spec.dataset, base)
    others = [name for name in base.partitions if spec.partition is not None and name != spec.partition]
    is_same = (state.options if state else {}) == spec.fit_options
    if others and (spec.refit or not is_same):
        clause = "refit=True fits" if spec.refit else "categories, label, fit or fit_params differ, and so fit"
        raise TrainyardError(
            f"{clause} anew, but {spec.dataset} has other partitions, such as {others[0]!r}, whose indices mean what "
            f"was fitted for them. {'Remove refit' if spec.refit else 'Write the same options'}, or export all "
            "partitions to another dataset."
        )
    return None if spec.refit or not is_same else state


def read_state(dataset: str, version: DatasetManifest) -> FittedState | None:
    """Return what was fitted for a version of a dataset, if anything was. Raises TrainyardError if it is missing."""
    if version.fitted is None:
        return None
    return fitted_state.read(uris.join(dataset, version.fitted.path), version.fitted)


def select_training_rows(assigned: DataFrame, split: str, spec: ExportSpec) -> DataFrame:
    """Return the rows of the split `train`, or of all folds, without the column of splits."""
    names = [TRAIN, *(fold_name(number) for number in range(1, (spec.folds or 0) + 1))]
    return assigned.where(get_column(split).isin(names)).drop(split)


def fit_values(
    rows: DataFrame,
    categories: Mapping[str, Category],
    labels: Collection[str],
    options: dict[str, Any],
    state: Any = None,
) -> FittedState:
    """Return the state of a dataset, with the vocabularies of its columns.

    Args:
        rows: The training rows.
        categories: The columns of categories.
        labels: The labels whose classes have names.
        options: The options that decide what is fitted, as JSON.
        state: What the user's `fit` returned.

    Raises:
        TrainyardError: A column has no values, because there are no training rows, for example; or too many.
    """
    vocabularies = find_vocabularies(rows, categories, labels) if categories or labels else {}
    return FittedState(options=options, vocabularies=vocabularies, state=state)


def to_state(path: str, returned: Any) -> Any:
    """Return what the user's `fit` returned as JSON has it, so that the first export gets what later ones read.

    Raises:
        TrainyardError: JSON does not have a value.
    """
    try:
        return json.loads(json.dumps(returned, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise TrainyardError(
            f"fit={path!r} returned what JSON does not have: {error}. Return strings, finite numbers, lists and dicts "
            "of them; convert a number of NumPy with float(), and a row of Spark with asDict()."
        ) from error
