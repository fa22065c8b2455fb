"""The order of rows: which rows make up each global batch, and which worker reads them.

Pure functions of (rows of each block, seed, epoch, batch size), with integer arithmetic only, so that the sequence of
global batches is the same for any number of workers, point of restart and version of a library.

    blocks     the record batches of a split, shuffled for the epoch
    rows       0..N-1, the shuffled blocks end to end, from a rotating start within the first
    lanes      `LANES` equal slices of the rows; lane l is read by rank l modulo the number of workers
    windows    `window` consecutive rows of every lane, shuffled within each lane: what a worker holds in memory at a
               time, copied there in runs of consecutive rows
    batches    the rows of the lanes in turn: virtual position i * LANES + l is row i of lane l, and global batch g has
               the virtual positions [g * batch, (g + 1) * batch)

With `bucket_by` the rows of a lane in a window are sorted by length instead, equal ones by their hash, so that the j-th
batch of a window has the j-th part of each lane: rows of similar length. The full batches of a window are then
permuted by a hash.

With `weights` rows are sampled: systematic resampling (Kitagawa, Journal of Computational and Graphical Statistics,
1996) lays a grid of N points, from an offset of the epoch, over the rows' weights end to end, and a row is drawn as
often as points meet it. Blocks then have as many rows as are drawn from them, still N in all.

With `groups` the blocks of each group are shuffled separately, and the groups follow each other: a lane has rows of one
group, except where two groups meet. Neighboring lanes then have slices far apart, so that each batch has the same mix
of groups as the epoch, within a few rows.

As the first N modulo LANES lanes have one row more, virtual positions are 0..N-1 without a gap: each row is in exactly
one batch, and every batch but the last is full.

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

from trainyard.trainer.data.jagged import build_ranges

LANES = 64
_STRIDE = 39
"""With groups lane l is slice 39 * l modulo 64: by the golden section, so that successive lanes are far apart."""
MAX_WINDOW = 1 << 16
POOL_BYTES = 8 << 20
"""Size of a window over all lanes: about that of a cache."""
BUCKET_POOL_BYTES = 64 << 20
"""The same with buckets: the more rows a lane has in a window, the more similar are the lengths in a batch."""
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
        window: The number of rows of a lane in a window; see `window_rows`.
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
        """Return how many points of the grid are below each cumulated weight; none are behind the last whole step."""
        step = int(self._weight_ends[-1]) // self.rows
        offset = int(_hash(self.seed, epoch, _GRID, np.arange(1))[0] % np.uint64(step))
        return (np.minimum(cumulated, step * self.rows) + offset) // step

    @cached_property
    def _lanes(self) -> tuple[Integers, Integers]:
        """The first row of each lane, and its number of rows."""
        lanes = np.arange(LANES)
        rows = (self.rows - lanes + LANES - 1) // LANES
        by_slice = np.argsort(lanes * _STRIDE % LANES) if self.groups else lanes
        starts = np.empty_like(rows)
        starts[by_slice] = np.cumsum(rows[by_slice]) - rows[by_slice]
        return starts, rows

    def windows(self, epoch: int, rank: int, world: int, step: int = 0) -> Iterator[Window]:
        """Yield the windows of `rank` out of `world` workers, from the one that contains global batch `step` on."""
        sections = _build_sections(self, epoch)
        steps_per_window = self.window * LANES // self.batch
        if not self.shuffle:
            stride = max(steps_per_window // 4, 1)
            for first in range(step, self.steps, stride):
                steps = range(first, min(first + stride, self.steps))
                yield _build_sequential_window(self, sections, rank, world, steps)
            return
        lanes = np.arange(rank, LANES, world, dtype=np.int64)
        for number in range(step // steps_per_window, math.ceil(self.steps / steps_per_window)):
            yield _build_shuffled_window(self, epoch, sections, lanes, number, steps_per_window)


def window_rows(batch: int, row_bytes: int, pool_bytes: int = POOL_BYTES) -> int:
    """Return the number of rows of a lane in one window.

    A window has about `pool_bytes` over all lanes, at least 8 batches, and a whole number of batches.
    """
    unit = batch // math.gcd(batch, LANES)
    rows = max(pool_bytes // (LANES * row_bytes), 8 * batch // LANES, 1)
    return max(min(rows, MAX_WINDOW) // unit, 1) * unit


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


def _build_shuffled_window(
    order: Order,
    epoch: int,
    sections: Sections,
    lanes: Integers,
    number: int,
    steps_per_window: int,
) -> Window:
    first = number * order.window
    starts, rows = (values[lanes] for values in order._lanes)
    depths = np.clip(rows - first, 0, order.window)
    runs = _build_runs(sections, zip((starts + first).tolist(), depths.tolist(), strict=True))
    first_step = number * steps_per_window
    last_step = min(first_step + steps_per_window, order.steps)
    ends = np.minimum(np.arange(first_step, last_step + 1) * order.batch, order.rows)
    own_ends = ends // LANES * len(lanes) + np.searchsorted(lanes, ends % LANES)
    sizes = np.diff(own_ends)
    if order.bucket_by is None:
        gather = partial(_interleave_lanes, order, epoch, lanes, first, depths)
        return Window(first_step, runs, gather, tuple(sizes.tolist()))
    permutation = _permute_batches(order, epoch, range(first_step, last_step))
    selection = build_ranges((own_ends[:-1] - own_ends[0])[permutation], sizes[permutation])

    def gather_buckets(lengths: Integers | None) -> Integers:
        return _interleave_lanes(order, epoch, lanes, first, depths, lengths)[selection]

    return Window(first_step, runs, gather_buckets, tuple(sizes[permutation].tolist()))


def _interleave_lanes(
    order: Order, epoch: int, lanes: Integers, first: int, depths: Integers, lengths: Integers | None
) -> Integers:
    """Return the rows of a window, which are stored lane after lane, in batch order: one of each lane in turn."""
    positions = _permute_lanes(order.seed, epoch, lanes, first, depths, lengths)
    positions += (np.cumsum(depths) - depths)[:, None]
    # Lanes that are one row shorter come last, so their missing rows are the end of the last turn.
    return positions.T.ravel()[: depths.sum()]


def _permute_batches(order: Order, epoch: int, steps: range) -> Integers:
    """Return a permutation of the batches of a window; a batch that is not full stays last."""
    permutation = np.arange(len(steps))
    full = sum(order.size(step) == order.batch for step in steps)
    permutation[:full] = np.argsort(_hash(order.seed, epoch, _BATCHES, permutation[:full] + steps.start), kind="stable")
    return permutation


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


def _permute_lanes(
    seed: int, epoch: int, lanes: Integers, first: int, depths: Integers, lengths: Integers | None
) -> Integers:
    """Return for each lane a permutation of its rows in this window, (lanes, depth): sorted by length and hash.

    The length takes the high bits of a key and the position of the row in the window the low bits, so that one sort
    gives the permutation. Positions behind the end of a shorter lane sort last.
    """
    position = np.arange(depths.max(initial=0), dtype=np.uint64)
    counter = lanes[:, None].astype(np.uint64) << np.uint64(40) | np.uint64(first) + position
    valid = position < depths[:, None].astype(np.uint64)
    keys = _hash(seed, epoch, _ROWS, counter)
    if lengths is not None:
        keys >>= np.uint64(24)
        keys[valid] |= np.minimum(lengths, MAX_LENGTH).astype(np.uint64) << np.uint64(40)
    keys &= ~np.uint64(MAX_WINDOW - 1)
    keys |= position
    keys[~valid] = np.uint64(2**64 - 1)
    keys.sort(axis=1)
    keys &= np.uint64(MAX_WINDOW - 1)
    return keys.view(np.int64)


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
