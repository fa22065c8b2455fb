"""How often rows are drawn: weights in whole numbers, so that every rank and machine has the same ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainer.dataset import Dataset
from trainer.ragged import Array, Integers
from trainer.world import World
from trainyard.contract.errors import TrainyardError

UNIT = 1 << 30
"""The weight of a row that is drawn once an epoch, in the mean."""
MOST_CLASSES = 1000
_ANNOUNCED = 16


@dataclass(frozen=True)
class Weights:
    """Those of a split's rows: `of` makes them from the values of `column`; `blocks` are their sums in each block."""

    column: str
    of: Callable[[Array], Integers]
    blocks: tuple[int, ...]


def balanced(dataset: Dataset, label: str, world: World) -> Weights:
    """Each value of `label` is drawn equally often. Raises TrainyardError where these are no classes."""
    counts: Counter[float] = Counter()
    for values in _values(dataset, label, _mine(dataset, world)):
        counts.update(dict(zip(*(found.tolist() for found in np.unique(values, return_counts=True)), strict=True)))
        if len(counts) > MOST_CLASSES:
            break
    counts = sum(world.gathered(counts), Counter())
    if len(counts) > MOST_CLASSES:
        raise TrainyardError(
            f"balance: label {label!r} has more than {MOST_CLASSES:,} values, so they are no classes. "
            "Write weight_by= with a column of weights."
        )
    classes = np.array(sorted(counts))
    weights = np.array([UNIT * dataset.rows // (len(counts) * counts[value]) for value in classes.tolist()])
    return _summed(dataset, label, lambda values: weights[np.searchsorted(classes, values)], world)


def weighted(dataset: Dataset, column: str, world: World) -> Weights:
    """Each row is drawn in proportion to its value of `column`. Raises TrainyardError for what is no weight."""
    sums = []
    for values in _values(dataset, column, _mine(dataset, world)):
        if not np.isfinite(values).all() or values.min() < 0:
            raise TrainyardError(
                f"weight_by={column!r}: it holds {values.min():g} to {values.max():g} in split {dataset.name!r}; "
                "weights are numbers from 0 on."
            )
        sums.append(math.fsum(values.tolist()))
    mean = math.fsum(value for each in world.gathered(sums) for value in each) / dataset.rows
    if mean == 0:
        raise TrainyardError(f"weight_by={column!r}: all weights of split {dataset.name!r} are 0.")
    return _summed(
        dataset, column, lambda values: np.rint(values.astype(np.float64) * (UNIT / mean)).astype(np.int64), world
    )


def _summed(dataset: Dataset, column: str, of: Callable[[Array], Integers], world: World) -> Weights:
    mine = [int(of(values).sum()) for values in _values(dataset, column, _mine(dataset, world))]
    shares = world.gathered(mine)
    sums = [shares[number % world.size][number // world.size] for number in range(len(dataset.blocks))]
    return Weights(column, of, tuple(sums))


def _mine(dataset: Dataset, world: World) -> range:
    """The blocks whose weights this rank looks at."""
    return range(world.rank, len(dataset.blocks), world.size)


def _values(dataset: Dataset, name: str, blocks: Sequence[int]) -> Iterator[Array]:
    column = next(column for column in dataset.columns if column.name == name)
    if column.kind != "scalar" or column.type == "binary":
        raise TrainyardError(f"rows are weighted by one number each, and column {name!r} is a {column.kind}.")
    for start in range(0, len(blocks), _ANNOUNCED):
        part = blocks[start : start + _ANNOUNCED]
        if dataset.remote:
            dataset.announce(part)
        for number in part:
            values = dataset.block(number)[name]
            assert isinstance(values, np.ndarray)
            yield values
