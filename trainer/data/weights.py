"""Weights of rows for sampling, as integers, so that they are the same on every worker and machine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from trainyard.errors import TrainyardError
from trainyard.trainer.data.mixture import Mixture
from trainyard.trainer.data.reading.blocks import Block
from trainyard.trainer.data.reading.jagged import Array, Integers
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.world import World

UNIT_BITS = 30
"""The weight of a row that is drawn once an epoch on average is 2 to the power of this, or less for very many rows."""
MAX_CLASSES = 1000
_PREFETCHED_BLOCKS = 16
_SMALLEST, _LARGEST = 1e-150, 1e150
"""Sums of such weights, and ratios to their mean, are finite."""


@dataclass(frozen=True)
class Weights:
    """The weights of the rows of a split.

    Attributes:
        of: Returns the weights of the rows of a block, from its number and columns.
        blocks: The sum of the weights in each block.
    """

    of: Callable[[int, Block], Integers]
    blocks: tuple[int, ...]


def choose_unit(rows: int) -> int:
    """Return the weight of a row that is drawn once an epoch on average: the sum over all rows fits into 62 bits."""
    return 1 << max(0, min(UNIT_BITS, 62 - rows.bit_length()))


def build_weights(
    data: SplitReader | Mixture,
    balance: str | None,
    weight_by: str | None,
    world: World,
    on_progress: Callable[[], None] = lambda: None,
) -> Weights | None:
    """Return the weights of all rows, or None where each row is read once an epoch.

    Args:
        data: The split. Within a mixture the rows of each dataset are weighted separately.
        balance: A column of labels, each of which is drawn equally often.
        weight_by: A column of weights.
        world: The workers, each of which reads its part of the column.
        on_progress: Called for each block that is read.

    Raises:
        TrainyardError: The column has no classes, or no valid weights.
    """
    if isinstance(data, Mixture):
        multiples = [share * data.rows / part.rows for part, share in zip(data.parts, data.shares, strict=True)]
        units = [round(choose_unit(data.rows) * multiple) for multiple in multiples]
        weights = [
            _weight_dataset(part, balance, weight_by, world, on_progress, unit)
            for part, unit in zip(data.parts, units, strict=True)
        ]
        return _concatenate(data, weights)
    if not (balance or weight_by):
        return None
    return _weight_dataset(data, balance, weight_by, world, on_progress, choose_unit(data.rows))


def _concatenate(data: Mixture, weights: Sequence[Weights]) -> Weights:
    return Weights(partial(_weigh_part, data, weights), tuple(total for part in weights for total in part.blocks))


@dataclass(frozen=True)
class _OwnValues:
    """The values of a column in each of the blocks that this worker reads."""

    dataset: SplitReader
    column: str
    world: World
    on_progress: Callable[[], None]

    def __iter__(self) -> Iterator[Array]:
        dataset, name = self.dataset, self.column
        column = next(column for column in dataset.columns if column.name == name)
        if column.kind != "scalar" or column.type == "binary":
            raise TrainyardError(f"rows are weighted by one number each, but column {name!r} is a {column.kind}.")
        blocks = range(self.world.rank, len(dataset.blocks), self.world.size)
        for start in range(0, len(blocks), _PREFETCHED_BLOCKS):
            part = blocks[start : start + _PREFETCHED_BLOCKS]
            dataset.prefetch(part)
            for number in part:
                yield _get_numbers(dataset.block(number), name)
                dataset.release([number])
                self.on_progress()


def _weight_dataset(
    dataset: SplitReader,
    balance: str | None,
    weight_by: str | None,
    world: World,
    on_progress: Callable[[], None],
    unit: int,
) -> Weights:
    """Return weights whose mean is about `unit`."""
    if weight_by:
        return _weight_by_column(_OwnValues(dataset, weight_by, world, on_progress), unit)
    if balance:
        return _balance_classes(_OwnValues(dataset, balance, world, on_progress), unit)
    return Weights(partial(_weigh_alike, dataset.blocks, unit), tuple(unit * rows for rows in dataset.blocks))


def _balance_classes(labels: _OwnValues, unit: int) -> Weights:
    counts: Counter[float] = Counter()
    for values in labels:
        classes, rows = np.unique(values, return_counts=True)
        counts.update(dict(zip(classes.tolist(), rows.tolist(), strict=True)))
        if len(counts) > MAX_CLASSES:
            break
    counts = sum(labels.world.gather(counts), Counter())
    if len(counts) > MAX_CLASSES:
        raise TrainyardError(
            f"balance: label {labels.column!r} has more than {MAX_CLASSES:,} values, so they are not classes. "
            "Write weight_by= with a column of weights instead."
        )
    classes = np.array(sorted(counts))
    rows_of_all = labels.dataset.rows
    weights = np.array([unit * rows_of_all // (len(counts) * counts[value]) for value in classes.tolist()])
    return _sum_blocks(labels, partial(_weigh_class, classes, weights))


def _weight_by_column(column: _OwnValues, unit: int) -> Weights:
    sums, dataset = [], column.dataset
    for values in column:
        others = values.astype(np.float64)[values != 0]
        if not ((others >= _SMALLEST) & (others <= _LARGEST)).all():  # NaN is in no range
            raise TrainyardError(
                f"weight_by={column.column!r}: values are {values.min():g} to {values.max():g} in split "
                f"{dataset.name!r} of {dataset.uri}; weights must be 0, or numbers from "
                f"{_SMALLEST:g} to {_LARGEST:g}."
            )
        sums.append(math.fsum(values.tolist()))
    mean = math.fsum(value for block_sums in column.world.gather(sums) for value in block_sums) / dataset.rows
    if mean == 0:
        raise TrainyardError(
            f"weight_by={column.column!r}: all weights of split {dataset.name!r} of {dataset.uri} are 0."
        )
    return _sum_blocks(column, partial(_scale, unit / mean))


def _sum_blocks(column: _OwnValues, of: Callable[[Array], Integers]) -> Weights:
    world = column.world
    by_rank = world.gather([int(of(values).sum()) for values in column])
    sums = [by_rank[number % world.size][number // world.size] for number in range(len(column.dataset.blocks))]
    return Weights(partial(_weigh_rows, column.column, of), tuple(sums))


def _weigh_part(data: Mixture, weights: Sequence[Weights], block: int, columns: Block) -> Integers:
    part, number = data.find(block)
    return weights[part].of(number, columns)


def _weigh_alike(blocks: Sequence[int], unit: int, block: int, _: Block) -> Integers:
    return np.full(blocks[block], unit)


def _weigh_class(classes: Array, weights: Integers, values: Array) -> Integers:
    return weights[np.searchsorted(classes, values)]


def _scale(factor: float, values: Array) -> Integers:
    return np.rint(values.astype(np.float64) * factor).astype(np.int64)


def _weigh_rows(column: str, of: Callable[[Array], Integers], _: int, block: Block) -> Integers:
    return of(_get_numbers(block, column))


def _get_numbers(block: Block, name: str) -> Array:
    values = block[name]
    assert isinstance(values, np.ndarray)
    return values
