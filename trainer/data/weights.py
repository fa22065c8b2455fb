"""Weights of rows for sampling, as integers, so that they are the same on every worker and machine."""

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
"""The weight of a row that is drawn once an epoch on average."""
MAX_CLASSES = 1000
_PREFETCHED_BLOCKS = 16


@dataclass(frozen=True)
class Weights:
    """The weights of the rows of a split.

    Attributes:
        of: Returns the weights of the rows of a block, from its number and columns.
        blocks: The sum of the weights in each block.
    """

    of: Callable[[int, Block], Integers]
    blocks: tuple[int, ...]


def build_weights(
    data: SplitReader | Mixture, balance: str | None, weight_by: str | None, world: World
) -> Weights | None:
    """Return the weights of all rows, or None where each row is read once an epoch.

    Args:
        data: The split. Within a mixture the rows of each dataset are weighted separately.
        balance: A column of labels, each of which is drawn equally often.
        weight_by: A column of weights.
        world: The workers, each of which reads its part of the column.

    Raises:
        TrainyardError: The column has no classes, or no valid weights.
    """
    if isinstance(data, Mixture):
        multiples = [share * data.rows / part.rows for part, share in zip(data.parts, data.shares, strict=True)]
        units = [round(UNIT * multiple) for multiple in multiples]
        weights = [
            _weight_dataset(part, balance, weight_by, world, unit) for part, unit in zip(data.parts, units, strict=True)
        ]
        return _concatenate(data, weights)
    return _weight_dataset(data, balance, weight_by, world) if balance or weight_by else None


def _concatenate(data: Mixture, weights: Sequence[Weights]) -> Weights:
    def of(block: int, columns: Block) -> Integers:
        part, number = data.find(block)
        return weights[part].of(number, columns)

    return Weights(of, tuple(total for part in weights for total in part.blocks))


def _weight_dataset(
    dataset: SplitReader, balance: str | None, weight_by: str | None, world: World, unit: int = UNIT
) -> Weights:
    """Return weights whose mean is about `unit`."""
    if weight_by:
        return _weight_by_column(dataset, weight_by, world, unit)
    if balance:
        return _balance_classes(dataset, balance, world, unit)
    return Weights(lambda block, _: np.full(dataset.blocks[block], unit), tuple(unit * rows for rows in dataset.blocks))


def _balance_classes(dataset: SplitReader, label: str, world: World, unit: int) -> Weights:
    counts: Counter[float] = Counter()
    for values in _read_values(dataset, label, _own_blocks(dataset, world)):
        classes, rows = np.unique(values, return_counts=True)
        counts.update(dict(zip(classes.tolist(), rows.tolist(), strict=True)))
        if len(counts) > MAX_CLASSES:
            break
    counts = sum(world.gather(counts), Counter())
    if len(counts) > MAX_CLASSES:
        raise TrainyardError(
            f"balance: label {label!r} has more than {MAX_CLASSES:,} values, so they are not classes. "
            "Write weight_by= with a column of weights instead."
        )
    classes = np.array(sorted(counts))
    weights = np.array([unit * dataset.rows // (len(counts) * counts[value]) for value in classes.tolist()])
    return _sum_blocks(dataset, label, lambda values: weights[np.searchsorted(classes, values)], world)


def _weight_by_column(dataset: SplitReader, column: str, world: World, unit: int) -> Weights:
    sums = []
    for values in _read_values(dataset, column, _own_blocks(dataset, world)):
        if not np.isfinite(values).all() or values.min() < 0:
            raise TrainyardError(
                f"weight_by={column!r}: values are {values.min():g} to {values.max():g} in split {dataset.name!r} of "
                f"{dataset.uri}; weights must be finite numbers from 0 on."
            )
        sums.append(math.fsum(values.tolist()))
    mean = math.fsum(value for block_sums in world.gather(sums) for value in block_sums) / dataset.rows
    if mean == 0:
        raise TrainyardError(f"weight_by={column!r}: all weights of split {dataset.name!r} of {dataset.uri} are 0.")
    return _sum_blocks(
        dataset, column, lambda values: np.rint(values.astype(np.float64) * (unit / mean)).astype(np.int64), world
    )


def _sum_blocks(dataset: SplitReader, column: str, of: Callable[[Array], Integers], world: World) -> Weights:
    own = [int(of(values).sum()) for values in _read_values(dataset, column, _own_blocks(dataset, world))]
    by_rank = world.gather(own)
    sums = [by_rank[number % world.size][number // world.size] for number in range(len(dataset.blocks))]
    return Weights(lambda _, block: of(_get_numbers(block, column)), tuple(sums))


def _own_blocks(dataset: SplitReader, world: World) -> range:
    """Return the blocks whose weights this worker reads."""
    return range(world.rank, len(dataset.blocks), world.size)


def _read_values(dataset: SplitReader, name: str, blocks: Sequence[int]) -> Iterator[Array]:
    column = next(column for column in dataset.columns if column.name == name)
    if column.kind != "scalar" or column.type == "binary":
        raise TrainyardError(f"rows are weighted by one number each, but column {name!r} is a {column.kind}.")
    for start in range(0, len(blocks), _PREFETCHED_BLOCKS):
        part = blocks[start : start + _PREFETCHED_BLOCKS]
        if dataset.remote:
            dataset.prefetch(part)
        for number in part:
            yield _get_numbers(dataset.block(number), name)


def _get_numbers(block: Block, name: str) -> Array:
    values = block[name]
    assert isinstance(values, np.ndarray)
    return values
