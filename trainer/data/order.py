"""The order of rows: which rows make up each global batch, and which rank reads them.

Pure functions of (rows of each block, seed, epoch, batch size), with integer arithmetic alone, so
the sequence of global batches is the same for any world size, restart point and library version.

    blocks     the record batches of a split, shuffled for the epoch
    rows       0..N-1, the shuffled blocks end to end, from a rotating start within the first
    lanes      `LANES` equal slices of the rows; lane l is served by rank l modulo the world size
    windows    `window` consecutive rows of every lane, shuffled within each lane: what a rank
               holds in memory at a time, copied there in runs of consecutive rows
    batches    the lanes dealt out like cards: virtual position i * LANES + l is row i of lane l,
               and global batch g has the virtual positions [g * batch, (g + 1) * batch)

With `bucket_by` the rows of a lane in a window are sorted by length instead, equal ones by their hash, so that the j-th
batch dealt from a window has the j-th part of each lane: rows of about one length. The full batches of a window then
take turns by a hash.

With `weights` rows are drawn: systematic resampling (Kitagawa, Journal of Computational and Graphical Statistics,
1996) lays a grid of N points, from an offset of the epoch, over the rows' weights end to end, and a row is there as
often as points meet it. Blocks then have as many rows as are drawn from them, still N in all.

With `groups` the blocks of each are shuffled by themselves, and the groups lie end to end: a lane has rows of one
group, but where two meet. Neighbouring lanes have slices far apart then, so that each batch has of each group what
the epoch has, but for a few rows.

As the first N modulo LANES lanes have one row more, virtual positions are 0..N-1 without a gap:
each row is in exactly one batch, and every batch but the last is full.

Without shuffling global batch g has the rows [g * batch, (g + 1) * batch) as they lie, and each rank a
contiguous part of it; a window is then a quarter of the steps, which a core's cache holds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from trainyard.trainer.data.jagged import spans

LANES = 64
_STRIDE = 39
"""With groups lane l is slice 39 * l modulo 64: by the golden section, so that lanes in turn have slices far apart."""
MAX_WINDOW = 1 << 16
POOL_BYTES = 8 << 20
"""Of a window over all lanes: near a cache's size."""
BUCKET_POOL_BYTES = 64 << 20
"""With buckets, which are the purer the more rows a lane has in a window."""
LONGEST = (1 << 24) - 1
"""Rows that are longer are sorted as if they were as long as this."""
_BLOCKS, _ROTATION, _ROWS, _BATCHES, _GRID = range(5)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)

Integers = NDArray[np.int64]
Sections = tuple[list[int], list[int], list[int]]


@dataclass(frozen=True)
class Run:
    """`rows` consecutive rows of `block` from `begin`, of those drawn from it where rows have weights."""

    block: int
    begin: int
    rows: int


@dataclass(frozen=True)
class Window:
    """One rank's part of a few global batches.

    The rows of the `runs`, end to end, taken in the order of `gather` (as they lie where it is
    None), are this rank's shares one after the other: `sizes[j]` of them, which may be none, for
    global batch `first_step + j`. `gather` is called with the lengths of the rows in buckets, else with None.
    """

    first_step: int
    runs: tuple[Run, ...]
    gather: Callable[[Integers | None], Integers] | None
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Order:
    """The order of one split. `blocks` are the rows of each record batch, `window` rows of a lane.

    `bucket_by` is the column whose lengths make the buckets. `weights` are the sums of the rows' weights in each
    block. `groups` says how many of the blocks are of each dataset, where several are mixed.
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
        return sum(self.blocks)

    @property
    def steps(self) -> int:
        """Global batches in an epoch; the last one may be smaller than the others."""
        return math.ceil(self.rows / self.batch)

    def size(self, step: int) -> int:
        """Rows of global batch `step`, over all ranks."""
        return min(self.batch, self.rows - step * self.batch)

    def drawn_from(self, block: int, epoch: int, weights: Integers) -> Integers:
        """The rows of `block` that are drawn in an epoch, as they lie, each as often as it is: by the weights of all.

        A row of weight w, where that of a row in the mean is m, is drawn floor(w / m) or ceil(w / m) times.
        """
        before = int(self._ends[block]) - self.weights[block]
        points = self._points(np.append(before, before + np.cumsum(weights)), epoch)
        return np.repeat(np.arange(len(weights)), np.diff(points))

    def _drawn(self, epoch: int) -> Integers:
        """How many rows are drawn from each block in an epoch."""
        if not self.weights:
            return np.asarray(self.blocks, dtype=np.int64)
        return np.diff(self._points(np.append(0, self._ends), epoch))

    @cached_property
    def _ends(self) -> Integers:
        return np.cumsum(np.asarray(self.weights, dtype=np.int64))

    def _points(self, upto: Integers, epoch: int) -> Integers:
        """Points of the grid below each cumulated weight; what is left over behind the last whole step is nobody's."""
        step = int(self._ends[-1]) // self.rows
        offset = int(_hash(self.seed, epoch, _GRID, np.arange(1))[0] % np.uint64(step))
        return (np.minimum(upto, step * self.rows) + offset) // step

    @cached_property
    def _lanes(self) -> tuple[Integers, Integers]:
        """Where each lane begins, and how many rows it has."""
        lanes = np.arange(LANES)
        rows = (self.rows - lanes + LANES - 1) // LANES
        dealt = np.argsort(lanes * _STRIDE % LANES) if self.groups else lanes
        starts = np.empty_like(rows)
        starts[dealt] = np.cumsum(rows[dealt]) - rows[dealt]
        return starts, rows

    def windows(self, epoch: int, rank: int, world: int, step: int = 0) -> Iterator[Window]:
        """The windows of `rank`, from the one that holds global batch `step` on."""
        sections = _sections(self, epoch)
        steps_per_window = self.window * LANES // self.batch
        if not self.shuffle:
            stride = max(steps_per_window // 4, 1)
            for first in range(step, self.steps, stride):
                steps = range(first, min(first + stride, self.steps))
                yield _straight_window(self, sections, rank, world, steps)
            return
        lanes = np.arange(rank, LANES, world, dtype=np.int64)
        for number in range(step // steps_per_window, math.ceil(self.steps / steps_per_window)):
            yield _shuffled_window(self, epoch, sections, lanes, number, steps_per_window)


def window_rows(batch: int, row_bytes: int, pool_bytes: int = POOL_BYTES) -> int:
    """Rows of a lane in one window: a pool of about `pool_bytes` over all lanes, of at least 8 batches, and of a whole
    number of batches."""
    unit = batch // math.gcd(batch, LANES)
    wanted = max(pool_bytes // (LANES * row_bytes), 8 * batch // LANES, 1)
    return max(min(wanted, MAX_WINDOW) // unit, 1) * unit


def _sections(order: Order, epoch: int) -> Sections:
    """The row sequence of an epoch as (block, first row in it, position of that row), plus its end."""
    rows = order._drawn(epoch)
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


def _straight_window(order: Order, sections: Sections, rank: int, world: int, steps: range) -> Window:
    pieces = []
    for step in steps:
        begin, size = step * order.batch, order.size(step)
        start = size * rank // world
        pieces.append((begin + start, size * (rank + 1) // world - start))
    sizes = tuple(rows for _, rows in pieces)
    if world == 1:
        pieces = [(pieces[0][0], sum(sizes))]
    return Window(steps.start, _runs(sections, pieces), None, sizes)


def _shuffled_window(
    order: Order,
    epoch: int,
    sections: Sections,
    lanes: Integers,
    number: int,
    steps_per_window: int,
) -> Window:
    first = number * order.window
    starts, rows = (each[lanes] for each in order._lanes)
    held = np.clip(rows - first, 0, order.window)
    runs = _runs(sections, zip((starts + first).tolist(), held.tolist(), strict=True))
    first_step = number * steps_per_window
    last_step = min(first_step + steps_per_window, order.steps)
    ends = np.minimum(np.arange(first_step, last_step + 1) * order.batch, order.rows)
    dealt = ends // LANES * len(lanes) + np.searchsorted(lanes, ends % LANES)
    sizes = np.diff(dealt)
    if order.bucket_by is None:
        return Window(first_step, runs, partial(_dealt, order, epoch, lanes, first, held), tuple(sizes.tolist()))
    turns = _turns(order, epoch, range(first_step, last_step))
    picked = spans((dealt[:-1] - dealt[0])[turns], sizes[turns])

    def gather(lengths: Integers | None) -> Integers:
        return _dealt(order, epoch, lanes, first, held, lengths)[picked]

    return Window(first_step, runs, gather, tuple(sizes[turns].tolist()))


def _dealt(order: Order, epoch: int, lanes: Integers, first: int, held: Integers, lengths: Integers | None) -> Integers:
    """The rows of a window, which lie lane after lane, in the order in which they are dealt."""
    positions = _shuffled(order.seed, epoch, lanes, first, held, lengths)
    positions += (np.cumsum(held) - held)[:, None]
    # Lanes that are a row shorter come last, so what they lack is the end of the last deal.
    return positions.T.ravel()[: held.sum()]


def _turns(order: Order, epoch: int, steps: range) -> Integers:
    """Which batch of a window comes when; one that is not full stays last."""
    turns = np.arange(len(steps))
    full = sum(order.size(step) == order.batch for step in steps)
    turns[:full] = np.argsort(_hash(order.seed, epoch, _BATCHES, turns[:full] + steps.start), kind="stable")
    return turns


def _runs(sections: Sections, pieces: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
    """The rows [start, start + rows) of the sequence for each piece (start, rows), cut where a block ends."""
    block, begin, position = sections
    runs = []
    for start, rows in pieces:
        end = start + rows
        section = bisect_right(position, start) - 1
        while start < end:
            upto = min(position[section + 1], end)
            if upto > start:
                runs.append(Run(block[section], begin[section] + start - position[section], upto - start))
            start = upto
            section += 1
    return tuple(runs)


def _shuffled(seed: int, epoch: int, lanes: Integers, first: int, held: Integers, lengths: Integers | None) -> Integers:
    """For each lane a permutation of its rows held in this window, (lanes, depth): sorted by length and hash.

    The length takes the high bits and the row's place in the window the low bits of a key, so one sort gives the
    permutation; rows that a shorter lane does not have sort last.
    """
    place = np.arange(held.max(initial=0), dtype=np.uint64)
    counter = lanes[:, None].astype(np.uint64) << np.uint64(40) | np.uint64(first) + place
    there = place < held[:, None].astype(np.uint64)
    keys = _hash(seed, epoch, _ROWS, counter)
    if lengths is not None:
        keys >>= np.uint64(24)
        keys[there] |= np.minimum(lengths, LONGEST).astype(np.uint64) << np.uint64(40)
    keys &= ~np.uint64(MAX_WINDOW - 1)
    keys |= place
    keys[~there] = np.uint64(2**64 - 1)
    keys.sort(axis=1)
    keys &= np.uint64(MAX_WINDOW - 1)
    return keys.view(np.int64)


def _hash(seed: int, epoch: int, purpose: int, counter: NDArray[np.generic]) -> NDArray[np.uint64]:
    """The splitmix64 stream (Steele, Lea and Flood, OOPSLA 2014) of (seed, epoch, purpose) at `counter`."""
    z = counter.astype(np.uint64)
    z *= _GOLDEN
    z += _key(seed, epoch, purpose)
    return _mix(z)


@lru_cache(8)
def _key(seed: int, epoch: int, purpose: int) -> np.uint64:
    key = np.zeros(1, dtype=np.uint64)
    for word in (seed, epoch, purpose):
        key = _mix(key ^ np.uint64(word % 2**64))
    return np.uint64(key[0])


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The mixing step, in place: what it costs is memory."""
    z += _GOLDEN
    shifted = z >> np.uint64(30)
    z ^= shifted
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= np.right_shift(z, np.uint64(27), out=shifted)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= np.right_shift(z, np.uint64(31), out=shifted)
    return z
