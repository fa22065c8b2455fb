"""How often rows are drawn: weights in whole numbers, so that every rank and machine has the same ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trainyard.errors import TrainyardError
from trainyard.trainer.data.jagged import Array, Integers
from trainyard.trainer.data.mixture import Mixture
from trainyard.trainer.data.split_reader import Block, SplitReader
from trainyard.trainer.world import World

UNIT = 1 << 30
"""The weight of a row that is drawn once an epoch, in the mean."""
MOST_CLASSES = 1000
_ANNOUNCED = 16


@dataclass(frozen=True)
class Weights:
    """Those of a split's rows: `of` makes them from a block's number and columns; `blocks` are their sums in each."""

    of: Callable[[int, Block], Integers]
    blocks: tuple[int, ...]


def chosen(data: SplitReader | Mixture, balance: str | None, weight_by: str | None, world: World) -> Weights | None:
    """Those by the values of a label, or by a column, within each dataset; None where each row is drawn once.

    Raises TrainyardError.
    """
    if isinstance(data, Mixture):
        wanted = [share * data.rows / part.rows for part, share in zip(data.parts, data.shares, strict=True)]
        units = [round(UNIT * times) for times in wanted]
        found = [_of_one(part, balance, weight_by, world, unit) for part, unit in zip(data.parts, units, strict=True)]
        return _mixed(data, found)
    return _of_one(data, balance, weight_by, world) if balance or weight_by else None


def _mixed(data: Mixture, found: Sequence[Weights]) -> Weights:
    def of(block: int, columns: Block) -> Integers:
        part, number = data.find(block)
        return found[part].of(number, columns)

    return Weights(of, tuple(total for weights in found for total in weights.blocks))


def _of_one(
    dataset: SplitReader, balance: str | None, weight_by: str | None, world: World, unit: int = UNIT
) -> Weights:
    """Weights whose mean is about `unit`."""
    if weight_by:
        return _weighted(dataset, weight_by, world, unit)
    if balance:
        return _balanced(dataset, balance, world, unit)
    return Weights(lambda block, _: np.full(dataset.blocks[block], unit), tuple(unit * rows for rows in dataset.blocks))


def _balanced(dataset: SplitReader, label: str, world: World, unit: int) -> Weights:
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
    weights = np.array([unit * dataset.rows // (len(counts) * counts[value]) for value in classes.tolist()])
    return _summed(dataset, label, lambda values: weights[np.searchsorted(classes, values)], world)


def _weighted(dataset: SplitReader, column: str, world: World, unit: int) -> Weights:
    """Each row is drawn in proportion to its value of `column`. Raises TrainyardError for what is no weight."""
    sums = []
    for values in _values(dataset, column, _mine(dataset, world)):
        if not np.isfinite(values).all() or values.min() < 0:
            raise TrainyardError(
                f"weight_by={column!r}: it holds {values.min():g} to {values.max():g} in split {dataset.name!r} of "
                f"{dataset.uri}; weights are numbers from 0 on."
            )
        sums.append(math.fsum(values.tolist()))
    mean = math.fsum(value for each in world.gathered(sums) for value in each) / dataset.rows
    if mean == 0:
        raise TrainyardError(f"weight_by={column!r}: all weights of split {dataset.name!r} of {dataset.uri} are 0.")
    return _summed(
        dataset, column, lambda values: np.rint(values.astype(np.float64) * (unit / mean)).astype(np.int64), world
    )


def _summed(dataset: SplitReader, column: str, of: Callable[[Array], Integers], world: World) -> Weights:
    mine = [int(of(values).sum()) for values in _values(dataset, column, _mine(dataset, world))]
    shares = world.gathered(mine)
    sums = [shares[number % world.size][number // world.size] for number in range(len(dataset.blocks))]
    return Weights(lambda _, block: of(_numbers(block, column)), tuple(sums))


def _mine(dataset: SplitReader, world: World) -> range:
    """The blocks whose weights this rank looks at."""
    return range(world.rank, len(dataset.blocks), world.size)


def _values(dataset: SplitReader, name: str, blocks: Sequence[int]) -> Iterator[Array]:
    column = next(column for column in dataset.columns if column.name == name)
    if column.kind != "scalar" or column.type == "binary":
        raise TrainyardError(f"rows are weighted by one number each, and column {name!r} is a {column.kind}.")
    for start in range(0, len(blocks), _ANNOUNCED):
        part = blocks[start : start + _ANNOUNCED]
        if dataset.remote:
            dataset.announce(part)
        for number in part:
            yield _numbers(dataset.block(number), name)


def _numbers(block: Block, name: str) -> Array:
    values = block[name]
    assert isinstance(values, np.ndarray)
    return values
