"""The order of rows: which rows make up each global batch, and which worker reads them.

Pure functions of (rows of each block, seed, epoch, batch size), with integer arithmetic only, so that the sequence of
global batches is the same for any number of workers, point of restart and version of a library.

    blocks     the record batches of a split, shuffled for the epoch
    rows       0..N-1, the shuffled blocks end to end, from a rotating start within the first
    stripes    equal slices of the rows, 64 or more
    windows    the next few rows of every stripe, end to end: what the workers hold in memory at a time. A window has
               a number of full batches; a last batch of the epoch that is not full is a window of its own
    lanes      the rows of a window in pieces of consecutive rows, as many pieces as a batch has rows; each piece has
               one row for each batch of the window, in shuffled order
    batches    one row of every lane

A worker reads consecutive lanes, in runs of consecutive rows. As a batch has one row of each lane, the local batches of
all workers have the same size, within one row, for any number of workers.

With `bucket_by` lanes are joined to groups, whose rows are sorted by length, equal ones by their hash: the j-th batch
of a window has the j-th part of each group, so that it has rows of similar length. The batches of a window are then
permuted by a hash. A worker that needs a part of a group reads all of it.

With `weights` rows are sampled: systematic resampling (Kitagawa, Journal of Computational and Graphical Statistics,
1996) lays a grid of N points, from an offset of the epoch, over the rows' weights end to end, and a row is drawn as
often as points meet it. Blocks then have as many rows as are drawn from them, still N in all.

With `groups` the blocks of each dataset are shuffled separately, and the datasets follow each other: each batch then
has the same mix of datasets as the epoch, within a few rows, because it has a row of every lane.

Without shuffling global batch g has the rows [g * batch, (g + 1) * batch) in stored order, and each worker a contiguous
part of it; a window is then a quarter of the steps, which fits the cache of a core.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

MIN_STRIPES = 64
MAX_STRIPES = 4096
ROWS_PER_STRIPE = 64
"""Rows of a large batch that come from the same stripe: with a usual local batch, few workers read the same stripe."""
MIN_STEPS = 8
MAX_STEPS = 1 << 16
POOL_BYTES = 8 << 20
"""Size of a window over all workers: about that of a cache."""
BUCKET_POOL_BYTES = 64 << 20
"""The same with buckets: the more rows a group has in a window, the more similar are the lengths in a batch."""
MAX_LENGTH = (1 << 24) - 1
"""Longer rows are sorted as if they had this length."""
_BLOCKS, _ROTATION, _ROWS, _BATCHES, _GRID = range(5)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Integers = NDArray[np.int64]
Sections = tuple[list[int], list[int], list[int]]


@dataclass(frozen=True)
class Run:
    """Consecutive rows of a block: `rows` rows from `begin`, among the drawn ones where rows have weights."""

    block: int
    begin: int
    rows: int


@dataclass(frozen=True)
class Window:
    """The part of one worker in a few global batches.

    Attributes:
        first_step: The number of the first of these global batches.
        runs: The rows of the window.
        gather: Returns the order in which the rows, end to end, make up the worker's local batches one after the other;
            None where that is the order of the runs. Its argument are the lengths of the rows with buckets, else None.
        sizes: The number of rows of each local batch, which may be 0.
    """

    first_step: int
    runs: tuple[Run, ...]
    gather: Callable[[Integers | None], Integers] | None
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """The order of the rows of one split.

    Attributes:
        blocks: The number of rows of each block.
        batch: The number of rows of a global batch.
        seed: The seed of the training.
        window: The number of batches in a window; see `window_steps`.
        shuffle: Whether rows are shuffled.
        bucket_by: The column whose lengths make the buckets.
        weights: The sum of the rows' weights in each block; empty where each row is read once an epoch.
        groups: The number of blocks of each dataset, where several are mixed.
    """

    blocks: tuple[int, ...]
    batch: int
    seed: int
    window: int
    shuffle: bool = True
    bucket_by: str | None = None
    weights: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()

    @cached_property
    def rows(self) -> int:
        """The number of rows of an epoch."""
        return sum(self.blocks)

    @property
    def steps(self) -> int:
        """The number of global batches of an epoch; the last one may be smaller than the others."""
        return math.ceil(self.rows / self.batch)

    def size(self, step: int) -> int:
        """Return the number of rows of global batch `step`, over all workers."""
        return min(self.batch, self.rows - step * self.batch)

    def sample_rows(self, block: int, epoch: int, weights: Integers) -> Integers:
        """Return the numbers of the rows of `block` that are drawn in an epoch, ascending, each as often as drawn.

        A row of weight w, where the mean weight is m, is drawn floor(w / m) or ceil(w / m) times.

        Args:
            block: The number of the block.
            epoch: The number of the epoch.
            weights: The weight of each row of the block.
        """
        before = int(self._weight_ends[block]) - self.weights[block]
        points = self._count_points(np.append(before, before + np.cumsum(weights)), epoch)
        return np.repeat(np.arange(len(weights)), np.diff(points))

    def _count_rows(self, epoch: int) -> Integers:
        """Return how many rows an epoch has from each block."""
        if not self.weights:
            return np.asarray(self.blocks, dtype=np.int64)
        return np.diff(self._count_points(np.append(0, self._weight_ends), epoch))

    @cached_property
    def _weight_ends(self) -> Integers:
        return np.cumsum(np.asarray(self.weights, dtype=np.int64))

    def _count_points(self, cumulated: Integers, epoch: int) -> Integers:
        """Return the number of points of the grid below each cumulated weight; the last whole step ends the grid."""
        step = int(self._weight_ends[-1]) // self.rows
        offset = int(_hash(self.seed, epoch, _GRID, np.arange(1))[0] % np.uint64(step))
        return (np.minimum(cumulated, step * self.rows) + offset) // step

    def windows(self, epoch: int, rank: int, world: int, step: int = 0) -> Iterator[Window]:
        """Yield the windows of `rank` out of `world` workers, from the one that contains global batch `step` on."""
        sections = _build_sections(self, epoch)
        if not self.shuffle:
            stride = max(self.window // 4, 1)
            for first in range(step, self.steps, stride):
                steps = range(first, min(first + stride, self.steps))
                yield _build_sequential_window(self, sections, rank, world, steps)
            return
        full = self.rows // self.batch
        for first in range(step // self.window * self.window, full, self.window):
            steps = range(first, min(first + self.window, full))
            if step < steps.stop:
                yield _build_shuffled_window(self, epoch, sections, rank, world, steps)
        if full < self.steps:
            yield _build_shuffled_window(self, epoch, sections, rank, world, range(full, self.steps))


def window_steps(batch: int, row_bytes: int, pool_bytes: int = POOL_BYTES) -> int:
    """Return the number of batches in a window: about `pool_bytes` over all workers, and at least 8."""
    return min(max(pool_bytes // (batch * row_bytes), MIN_STEPS), MAX_STEPS)


def _build_sections(order: Order, epoch: int) -> Sections:
    """Return the row sequence of an epoch: (blocks, first row in each, its position in the sequence), plus the end."""
    rows = order._count_rows(epoch)
    blocks = np.arange(len(rows))
    if not order.shuffle:
        return blocks.tolist(), [0] * len(blocks), [0, *np.cumsum(rows).tolist()]
    keys = _hash(order.seed, epoch, _BLOCKS, blocks)
    group = np.repeat(np.arange(len(order.groups)), order.groups) if order.groups else np.zeros_like(blocks)
    blocks = np.lexsort((keys, group))
    turn = int(_hash(order.seed, epoch, _ROTATION, np.arange(1))[0] % np.uint64(max(rows[blocks[0]], 1)))
    block = np.append(blocks, blocks[0])
    begin = np.zeros_like(block)
    begin[0] = turn
    length = rows[block]
    length[0] -= turn
    length[-1] = turn
    return block.tolist(), begin.tolist(), [0, *np.cumsum(length).tolist()]


def _build_sequential_window(order: Order, sections: Sections, rank: int, world: int, steps: range) -> Window:
    pieces = []
    for step in steps:
        begin, size = step * order.batch, order.size(step)
        start = size * rank // world
        pieces.append((begin + start, size * (rank + 1) // world - start))
    sizes = tuple(rows for _, rows in pieces)
    if world == 1:
        pieces = [(pieces[0][0], sum(sizes))]
    return Window(steps.start, _build_runs(sections, pieces), None, sizes)


def _build_shuffled_window(order: Order, epoch: int, sections: Sections, rank: int, world: int, steps: range) -> Window:
    lanes = order.size(steps.start)
    own = range(rank * lanes // world, (rank + 1) * lanes // world)
    begin = steps.start * order.batch
    sizes = (len(own),) * len(steps)
    if order.bucket_by is None:
        pieces = _slice_window(order, begin, len(steps) * lanes, range(own.start * len(steps), own.stop * len(steps)))
        gather = partial(_gather_lanes, order, epoch, begin, own, len(steps))
        return Window(steps.start, _build_runs(sections, pieces), gather, sizes)
    ends = _split_evenly(lanes, min(lanes, _count_stripes(order.batch)))
    ends = ends[np.searchsorted(ends, own.start, "right") - 1 : np.searchsorted(ends, own.stop) + 1]
    rows = range(int(ends[0]) * len(steps), int(ends[-1]) * len(steps))
    pieces = _slice_window(order, begin, len(steps) * lanes, rows)
    gather = partial(_gather_buckets, order, epoch, begin, own, steps, ends)
    return Window(steps.start, _build_runs(sections, pieces), gather, sizes)


def _count_stripes(batch: int) -> int:
    return min(max(batch // ROWS_PER_STRIPE, MIN_STRIPES), MAX_STRIPES)


def _split_evenly(total: int, parts: int) -> Integers:
    """Return where `parts` equal parts of `total` items begin, and the end of the last."""
    return np.arange(parts + 1) * total // parts


def _slice_window(order: Order, begin: int, rows: int, selected: range) -> Iterable[tuple[int, int]]:
    """Return (start, length) in the sequence of the `selected` rows of a window.

    Args:
        order: The order.
        begin: The number of rows in the windows before.
        rows: The number of rows of the window.
        selected: The rows, numbered in the window: first those of stripe 0, then those of stripe 1, ...
    """
    stripes = _count_stripes(order.batch)
    number = np.arange(stripes)
    # Of the first n rows of the sequence of windows, stripe s has those whose number is s modulo the stripes.
    total, before, until = ((n - number + stripes - 1) // stripes for n in (order.rows, begin, begin + rows))
    ends = np.cumsum(until - before)
    first = np.maximum(ends - (until - before), selected.start)
    last = np.minimum(ends, selected.stop)
    starts = np.cumsum(total) - total + until - ends + first
    return zip(*((values[first < last]).tolist() for values in (starts, last - first)), strict=True)


def _gather_lanes(order: Order, epoch: int, begin: int, own: range, steps: int, _: Integers | None) -> Integers:
    """Return the rows of some lanes, which are stored lane after lane, in batch order."""
    position = np.arange(steps, dtype=np.uint64)
    number = np.arange(own.start, own.stop, dtype=np.uint64)[:, None] * np.uint64(steps)
    keys = _hash(order.seed, epoch, _ROWS, number + position + np.uint64(begin))
    # A key has the hash in its high bits, and the position in its low bits: one sort gives the permutation.
    keys &= ~np.uint64(MAX_STEPS - 1)
    keys |= position
    keys.sort(axis=1)
    keys &= np.uint64(MAX_STEPS - 1)
    keys += np.arange(len(own), dtype=np.uint64)[:, None] * np.uint64(steps)
    return keys.T.ravel().view(np.int64)


def _gather_buckets(
    order: Order, epoch: int, begin: int, own: range, steps: range, ends: Integers, lengths: Integers | None
) -> Integers:
    """Return the rows of some lanes in batch order.

    Args:
        order: The order.
        epoch: The number of the epoch.
        begin: The number of rows in the windows before.
        own: The lanes of this worker.
        steps: The batches of the window.
        ends: The first lane of each group that has some of these lanes, and the end of the last.
        lengths: The lengths of the rows of these groups; None if there are none.
    """
    if lengths is None:
        return np.empty(0, np.int64)
    count = len(steps)
    group = np.repeat(np.arange(len(ends) - 1), np.diff(ends) * count)
    keys = _hash(order.seed, epoch, _ROWS, np.arange(len(group)) + (int(ends[0]) * count + begin))
    keys >>= np.uint64(24)
    keys |= np.minimum(lengths, MAX_LENGTH).astype(np.uint64) << np.uint64(40)
    by_length = np.lexsort((keys, group))
    permutation = np.argsort(_hash(order.seed, epoch, _BATCHES, np.arange(steps.start, steps.stop)), kind="stable")
    lane = np.arange(own.start, own.stop)
    number = np.searchsorted(ends, lane, "right") - 1
    # Batch i has the rows [i * width, (i + 1) * width) of a sorted group of `width` lanes.
    first = (ends[number] - ends[0]) * count + lane - ends[number]
    width = np.diff(ends)[number]
    selected: Integers = by_length[(first + permutation[:, None] * width).ravel()]
    return selected


def _build_runs(sections: Sections, pieces: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
    """Return the rows [start, start + rows) of the sequence for each piece (start, rows), cut at the ends of blocks."""
    block, begin, position = sections
    runs = []
    for start, rows in pieces:
        end = start + rows
        section = bisect_right(position, start) - 1
        while start < end:
            stop = min(position[section + 1], end)
            if stop > start:
                runs.append(Run(block[section], begin[section] + start - position[section], stop - start))
            start = stop
            section += 1
    return tuple(runs)


def _hash(seed: int, epoch: int, purpose: int, counter: NDArray[np.generic]) -> NDArray[np.uint64]:
    """Return the splitmix64 stream (Steele, Lea and Flood, OOPSLA 2014) of (seed, epoch, purpose) at `counter`."""
    z = counter.astype(np.uint64)
    z *= _GOLDEN
    z += _build_key(seed, epoch, purpose)
    return _mix(z)


@lru_cache(8)
def _build_key(seed: int, epoch: int, purpose: int) -> np.uint64:
    key = np.zeros(1, dtype=np.uint64)
    for word in (seed, epoch, purpose):
        key = _mix(key ^ np.uint64(word % 2**64))
    return np.uint64(key[0])


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply the mixing step of splitmix64 in place, which saves memory traffic."""
    z += _GOLDEN
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= np.right_shift(z, np.uint64(27), out=shifted)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= np.right_shift(z, np.uint64(31), out=shifted)
    return z
