"""The order of rows: every row once an epoch, in the same global batches whoever reads them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trainer.order import LANES, Order, window_rows

orders = st.builds(
    lambda blocks, batch, seed, row_bytes, shuffle: Order(
        tuple(blocks), batch, seed, window_rows(batch, row_bytes, pool_bytes=1 << 16), shuffle
    ),
    blocks=st.lists(st.integers(1, 400), min_size=1, max_size=30),
    batch=st.integers(1, 300),
    seed=st.integers(0, 2**63 - 1),
    row_bytes=st.integers(1, 5000),
    shuffle=st.booleans(),
)


def share(order: Order, epoch: int, rank: int, world: int, step: int = 0) -> dict[int, list[tuple[int, int]]]:
    """The (block, row) pairs that `rank` contributes to each global batch from `step` on."""
    shares = {}
    for window in order.windows(epoch, rank, world, step):
        held = np.array([(run.block, run.begin + row) for run in window.runs for row in range(run.rows)])
        rows = held.reshape(-1, 2) if window.gather is None else held.reshape(-1, 2)[window.gather]
        for j, (a, b) in enumerate(pairwise(np.cumsum([0, *window.sizes]))):
            if window.first_step + j >= step:
                shares[window.first_step + j] = [tuple(pair) for pair in rows[a:b].tolist()]
    return shares


def global_batches(order: Order, epoch: int, world: int, step: int = 0) -> dict[int, list[tuple[int, int]]]:
    parts = [share(order, epoch, rank, world, step) for rank in range(world)]
    assert all(part.keys() == parts[0].keys() for part in parts), "every rank has the same steps"
    return {g: sorted(pair for part in parts for pair in part[g]) for g in parts[0]}


@given(orders, st.integers(0, 5), st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_every_row_is_in_exactly_one_global_batch_of_an_epoch(order: Order, epoch: int, world: int) -> None:
    batches = global_batches(order, epoch, world)
    rows = [pair for batch in batches.values() for pair in batch]
    assert sorted(rows) == [(block, row) for block, n in enumerate(order.blocks) for row in range(n)]
    assert [len(batches[g]) for g in range(order.steps)] == [order.size(g) for g in range(order.steps)]


@given(orders, st.integers(0, 5), st.integers(2, 9))
@settings(max_examples=150, deadline=None)
def test_global_batches_do_not_depend_on_the_world_size(order: Order, epoch: int, world: int) -> None:
    assert global_batches(order, epoch, world) == global_batches(order, epoch, 1)


@given(orders, st.integers(0, 5), st.integers(1, 5), st.data())
@settings(max_examples=150, deadline=None)
def test_a_resumed_epoch_goes_on_with_the_batches_that_were_left(
    order: Order, epoch: int, world: int, data: st.DataObject
) -> None:
    step = data.draw(st.integers(0, order.steps - 1))
    whole = global_batches(order, epoch, 1)
    assert global_batches(order, epoch, world, step) == {g: rows for g, rows in whole.items() if g >= step}


@given(orders.filter(lambda order: order.shuffle), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_a_window_is_bounded_by_its_rows_times_the_lanes_served(order: Order, world: int) -> None:
    for window in order.windows(0, 0, world):
        assert sum(run.rows for run in window.runs) <= order.window * -(-LANES // world)


@given(orders.filter(lambda order: not order.shuffle), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_unshuffled_batches_are_the_rows_as_they_lie(order: Order, epoch: int) -> None:
    rows = [pair for _, batch in sorted(share(order, epoch, 0, 1).items()) for pair in batch]
    assert rows == [(block, row) for block, n in enumerate(order.blocks) for row in range(n)]


@given(orders.filter(lambda order: order.shuffle))
@settings(max_examples=100, deadline=None)
def test_two_ranks_at_most_read_one_block_of_a_lane_or_more(order: Order) -> None:
    lane_rows = order.rows // LANES
    world = 8
    readers: dict[int, set[int]] = {}
    for rank in range(world):
        for window in order.windows(0, rank, world):
            for run in window.runs:
                readers.setdefault(run.block, set()).add(rank)
    for block, ranks in readers.items():
        assert len(ranks) <= order.blocks[block] // max(lane_rows, 1) + 3


def test_epochs_and_seeds_differ() -> None:
    order = Order((100, 100, 100), 10, 1, 64)
    first = global_batches(order, 0, 1)
    assert first != global_batches(order, 1, 1)
    assert first != global_batches(Order((100, 100, 100), 10, 2, 64), 0, 1)


def test_the_order_is_the_one_that_was_published() -> None:
    """Guards against a change of order between releases, which would break a resumed run."""
    batches = global_batches(Order((50, 70, 40), batch=8, seed=42, window=16), epoch=3, world=1)
    assert batches[0] == [(0, 34), (0, 37), (0, 41), (0, 42), (0, 46), (0, 48), (1, 3), (1, 4)]
    assert batches[19] == [(1, 56), (1, 58), (1, 61), (1, 64), (1, 69), (2, 1), (2, 5), (2, 6)]
