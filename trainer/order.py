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

As the first N modulo LANES lanes have one row more, virtual positions are 0..N-1 without a gap:
each row is in exactly one batch, and every batch but the last is full.

Without shuffling global batch g has the rows [g * batch, (g + 1) * batch) as they lie, and each rank a
contiguous part of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LANES = 64
MAX_WINDOW = 1 << 16
_BLOCKS, _ROTATION, _ROWS = range(3)

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Run:
    """`rows` consecutive rows of `block` from `begin`, to be copied to `target` in the window."""

    block: int
    begin: int
    rows: int
    target: int


@dataclass(frozen=True)
class Window:
    """One rank's part of a few global batches.

    `runs` fill a buffer of `rows` rows. `gather[bounds[j]:bounds[j + 1]]` are the positions in it
    that make up this rank's share of global batch `first_step + j`; a share may be empty. Where
    `gather` is None, the rows lie in the buffer in the order of the batches.
    """

    first_step: int
    rows: int
    runs: tuple[Run, ...]
    gather: Integers | None
    bounds: Integers


@dataclass(frozen=True)
class Order:
    """The order of one split. `blocks` are the rows of each record batch, `window` rows of a lane."""

    blocks: tuple[int, ...]
    batch: int
    seed: int
    window: int
    shuffle: bool = True

    @property
    def rows(self) -> int:
        return sum(self.blocks)

    @property
    def steps(self) -> int:
        """Global batches in an epoch; the last one may be smaller than the others."""
        return math.ceil(self.rows / self.batch)

    def size(self, step: int) -> int:
        """Rows of global batch `step`, over all ranks."""
        return min(self.batch, self.rows - step * self.batch)

    def windows(self, epoch: int, rank: int, world: int, step: int = 0) -> Iterator[Window]:
        """The windows of `rank`, from the one that holds global batch `step` on."""
        sections = _sections(self, epoch)
        lanes = np.arange(rank, LANES, world, dtype=np.int64)
        steps_per_window = self.window * LANES // self.batch
        for number in range(step // steps_per_window, math.ceil(self.steps / steps_per_window)):
            if self.shuffle:
                yield _shuffled_window(self, epoch, sections, lanes, number, steps_per_window)
            else:
                yield _straight_window(self, sections, rank, world, number, steps_per_window)


def window_rows(batch: int, row_bytes: int, pool_bytes: int = 4 << 20) -> int:
    """Rows of a lane in one window: a pool of about `pool_bytes` over all lanes (near a cache's
    size), of at least 8 batches, and of a whole number of batches."""
    unit = batch // math.gcd(batch, LANES)
    wanted = max(pool_bytes // (LANES * row_bytes), 8 * batch // LANES, 1)
    return max(min(wanted, MAX_WINDOW) // unit, 1) * unit


def _sections(order: Order, epoch: int) -> tuple[Integers, Integers, Integers]:
    """The row sequence of an epoch as (block, first row in it, position of that row), plus its end."""
    rows = np.asarray(order.blocks, dtype=np.int64)
    blocks = np.arange(len(rows))
    if not order.shuffle:
        return blocks, np.zeros_like(blocks), np.concatenate([[0], np.cumsum(rows)])
    blocks = np.argsort(_hash(order.seed, epoch, _BLOCKS, blocks), kind="stable")
    turn = int(_hash(order.seed, epoch, _ROTATION, np.arange(1))[0] % np.uint64(max(rows[blocks[0]], 1)))
    block = np.append(blocks, blocks[0])
    begin = np.zeros_like(block)
    begin[0] = turn
    length = rows[block]
    length[0] -= turn
    length[-1] = turn
    return block, begin, np.concatenate([[0], np.cumsum(length)])


def _straight_window(
    order: Order,
    sections: tuple[Integers, Integers, Integers],
    rank: int,
    world: int,
    number: int,
    steps_per_window: int,
) -> Window:
    first_step = number * steps_per_window
    steps = np.arange(first_step, min(first_step + steps_per_window, order.steps))
    begin = steps * order.batch
    size = np.minimum(order.batch, order.rows - begin)
    share = size * (rank + 1) // world - size * rank // world
    bounds = np.concatenate([[0], np.cumsum(share)]).astype(np.int64)
    pieces = zip((begin + size * rank // world).tolist(), share.tolist(), bounds.tolist(), strict=False)
    if world == 1:
        pieces = zip([int(begin[0])], [int(bounds[-1])], [0], strict=True)
    runs = tuple(run for start, rows, target in pieces for run in _runs(sections, start, rows, target))
    return Window(first_step, int(bounds[-1]), runs, None, bounds)


def _shuffled_window(
    order: Order,
    epoch: int,
    sections: tuple[Integers, Integers, Integers],
    lanes: Integers,
    number: int,
    steps_per_window: int,
) -> Window:
    first = number * order.window
    lane_rows = (order.rows - lanes + LANES - 1) // LANES
    lane_start = lanes * (order.rows // LANES) + np.minimum(lanes, order.rows % LANES)
    held = np.clip(lane_rows - first, 0, order.window)
    depth = int(held.max(initial=0))

    runs: list[Run] = []
    for lane, (start, rows) in enumerate(zip(lane_start + first, held, strict=True)):
        runs.extend(_runs(sections, int(start), int(rows), lane * depth))

    positions = _shuffled(order.seed, epoch, lanes, first, depth, held)
    positions = positions + np.arange(len(lanes), dtype=np.int64)[:, None] * depth
    virtual = (first + np.arange(depth, dtype=np.int64))[:, None] * LANES + lanes
    present = np.arange(depth)[:, None] < held
    first_step = number * steps_per_window
    last_step = min(first_step + steps_per_window, order.steps)
    bounds = np.searchsorted(virtual[present], np.arange(first_step, last_step + 1) * order.batch)
    return Window(first_step, len(lanes) * depth, tuple(runs), positions.T[present], bounds.astype(np.int64))


def _runs(sections: tuple[Integers, Integers, Integers], start: int, rows: int, target: int) -> Iterator[Run]:
    """The rows [start, start + rows) of the sequence, cut where a block ends."""
    block, begin, position = sections
    end = start + rows
    section = int(np.searchsorted(position, start, side="right")) - 1
    while start < end:
        upto = min(int(position[section + 1]), end)
        if upto > start:
            skipped = start - int(position[section])
            yield Run(int(block[section]), int(begin[section]) + skipped, upto - start, target)
        target += upto - start
        start = upto
        section += 1


def _shuffled(seed: int, epoch: int, lanes: Integers, first: int, depth: int, held: Integers) -> Integers:
    """For each lane a permutation of its rows held in this window, (lanes, depth): sorted by hash.

    The row's place in the window takes the hash's low bits, so one sort gives the permutation;
    rows that a shorter lane does not have sort last.
    """
    place = np.arange(depth, dtype=np.uint64)
    counter = lanes[:, None].astype(np.uint64) << np.uint64(40) | np.uint64(first) + place
    keys = _hash(seed, epoch, _ROWS, counter) & ~np.uint64(MAX_WINDOW - 1) | place
    keys[np.arange(depth) >= held[:, None]] = np.uint64(2**64 - MAX_WINDOW) | np.uint64(MAX_WINDOW - 1)
    keys.sort(axis=1)
    return (keys & np.uint64(MAX_WINDOW - 1)).astype(np.int64)


def _hash(seed: int, epoch: int, purpose: int, counter: NDArray[np.generic]) -> NDArray[np.uint64]:
    """The splitmix64 stream (Steele, Lea and Flood, OOPSLA 2014) of (seed, epoch, purpose) at `counter`."""
    key = np.uint64(0)
    with np.errstate(over="ignore"):
        for word in (seed, epoch, purpose):
            key = _mix(np.asarray([key ^ np.uint64(word % 2**64)], dtype=np.uint64))[0]
        return _mix(key + counter.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15))


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
