"""The order of rows: every row once an epoch, in the same global batches for any number of workers."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from dataclasses import astuple
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from trainyard.trainer.data.order import Order, Run, window_steps

LENGTHS = np.tile(np.random.default_rng(0).geometric(0.05, (30, 400)), 13)
WEIGHTS = np.tile(np.random.default_rng(1).integers(0, 10, (30, 400)), 13) ** 9
"""The weight of each row of each block."""
LARGE = st.sampled_from([65_536, 65_539, 131_071])
"""Sizes of batches and of worker groups; two are prime."""


def build_orders(blocks: st.SearchStrategy[list[int]], batch: st.SearchStrategy[int]) -> st.SearchStrategy[Order]:
    return st.builds(
        lambda blocks, batch, seed, row_bytes, shuffle, bucket_by, weighted: Order(
            tuple(blocks),
            batch,
            seed,
            window_steps(batch, row_bytes, pool_bytes=1 << 16),
            shuffle,
            bucket_by,
            tuple(int(row_weights(b, rows).sum()) for b, rows in enumerate(blocks)) if weighted else (),
        ),
        blocks=blocks,
        batch=batch,
        seed=st.integers(0, 2**63 - 1),
        row_bytes=st.integers(1, 5000),
        shuffle=st.booleans(),
        bucket_by=st.sampled_from([None, "tokens"]),
        weighted=st.booleans(),
    )


orders = build_orders(st.lists(st.integers(1, 400), min_size=1, max_size=30), st.integers(1, 300) | LARGE)
large_orders = build_orders(st.lists(st.integers(3000, 5000), min_size=22, max_size=30), LARGE)


def row_weights(block: int, rows: int) -> NDArray[np.int64]:
    return WEIGHTS[block, :rows] + (block == 0)


def sample(order: Order, block: int, epoch: int) -> list[int]:
    """Return the rows of a block that are drawn in an epoch."""
    rows = order.blocks[block]
    weighted = bool(order.weights)
    return order.sample_rows(block, epoch, row_weights(block, rows)).tolist() if weighted else list(range(rows))


def local_batches(order: Order, epoch: int, rank: int, world: int, step: int = 0) -> dict[int, list[tuple[int, int]]]:
    """Return the (block, row) pairs of `rank` in each global batch from `step` on."""
    batches = {}
    for window in order.windows(epoch, rank, world, step):
        runs = [(run, sample(order, run.block, epoch)[run.begin : run.begin + run.rows]) for run in window.runs]
        pairs = [(run.block, row) for run, rows in runs for row in rows]
        rows = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        if window.gather:
            rows = rows[window.gather(LENGTHS[rows[:, 0], rows[:, 1]] if order.bucket_by else None)]
        for j, (a, b) in enumerate(pairwise(np.cumsum([0, *window.sizes]))):
            if window.first_step + j >= step:
                batches[window.first_step + j] = [tuple(pair) for pair in rows[a:b].tolist()]
    return batches


def global_batches(order: Order, epoch: int, world: int, step: int = 0) -> dict[int, list[tuple[int, int]]]:
    parts = [local_batches(order, epoch, rank, world, step) for rank in range(world)]
    assert all(part.keys() == parts[0].keys() for part in parts), "every worker has the same steps"
    return {g: sorted(pair for part in parts for pair in part[g]) for g in parts[0]}


@pytest.mark.slow
@given(orders, st.integers(0, 5), st.integers(1, 9))
@settings(max_examples=150, deadline=None)
def test_every_row_is_in_an_epoch_as_often_as_it_is_drawn(order: Order, epoch: int, world: int) -> None:
    batches = global_batches(order, epoch, world)
    rows = [pair for batch in batches.values() for pair in batch]
    assert sorted(rows) == [(b, row) for b in range(len(order.blocks)) for row in sample(order, b, epoch)]
    assert [len(batches[g]) for g in range(order.steps)] == [order.size(g) for g in range(order.steps)]


@pytest.mark.slow
@given(orders, st.integers(0, 5), st.integers(2, 9))
@settings(max_examples=150, deadline=None)
def test_global_batches_do_not_depend_on_the_number_of_workers(order: Order, epoch: int, world: int) -> None:
    assert global_batches(order, epoch, world) == global_batches(order, epoch, 1)


def check_workers(order: Order, epoch: int, world: int, data: st.DataObject) -> None:
    """Check that each of a few workers has its part of what one worker alone has."""
    alone = local_batches(order, epoch, 0, 1)
    for rank in data.draw(st.lists(st.integers(0, world - 1), min_size=1, max_size=4)):
        parts = local_batches(order, epoch, rank, world)
        assert parts == {g: b[len(b) * rank // world : len(b) * (rank + 1) // world] for g, b in alone.items()}


@pytest.mark.slow
@given(orders, st.integers(0, 5), st.integers(2, 30_000) | LARGE, st.data())
@settings(max_examples=100, deadline=None)
def test_a_worker_has_its_part_of_each_batch_also_if_workers_outnumber_rows(
    order: Order, epoch: int, world: int, data: st.DataObject
) -> None:
    check_workers(order, epoch, world, data)


@pytest.mark.full
@pytest.mark.slow
@given(large_orders, st.integers(0, 5), st.integers(1, 9) | LARGE, st.data())
@settings(max_examples=10, deadline=None)
def test_batches_of_many_rows_have_every_row_in_the_same_parts(
    order: Order, epoch: int, world: int, data: st.DataObject
) -> None:
    rows = [pair for batch in local_batches(order, epoch, 0, 1).values() for pair in batch]
    assert sorted(rows) == [(b, row) for b in range(len(order.blocks)) for row in sample(order, b, epoch)]
    check_workers(order, epoch, world, data)


@pytest.mark.slow
@given(orders, st.integers(0, 5), st.integers(1, 5), st.data())
@settings(max_examples=150, deadline=None)
def test_a_resumed_epoch_has_the_remaining_batches(order: Order, epoch: int, world: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(0, order.steps - 1))
    full = global_batches(order, epoch, 1)
    assert global_batches(order, epoch, world, step) == {g: rows for g, rows in full.items() if g >= step}


@given(orders.filter(lambda order: order.shuffle and not order.bucket_by), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_a_worker_holds_its_part_of_a_window(order: Order, world: int) -> None:
    for window in order.windows(0, 0, world):
        assert sum(run.rows for run in window.runs) == sum(window.sizes) <= order.window * -(-order.batch // world)


@given(orders.filter(lambda order: order.shuffle), st.integers(1, 4096) | LARGE)
@settings(max_examples=100, deadline=None)
def test_local_batches_have_the_same_size_within_a_row(order: Order, world: int) -> None:
    ranks = {0, world // 3, world // 2, world - 1}
    sizes = [[size for window in order.windows(0, rank, world) for size in window.sizes] for rank in ranks]
    for step, of_ranks in enumerate(zip(*sizes, strict=True)):
        assert {order.size(step) // world, -(-order.size(step) // world)} >= set(of_ranks)


@pytest.mark.parametrize("world", [48, 63, 64, 65, 100, 257, 511, 512, 4096])
def test_no_worker_is_without_rows_while_a_batch_has_them(world: int) -> None:
    order = Order((5000,) * 200, 64 * world, 7, window_steps(64 * world, 128))
    for rank in {0, 1, world // 2, world - 1}:
        sizes = [size for window in order.windows(0, rank, world) for size in window.sizes]
        assert sizes[:-1] == [64] * (order.steps - 1)
        assert sizes[-1] >= order.size(order.steps - 1) // world


@pytest.mark.parametrize("batch", [1, 2, 61, 65_539, 131_071])
def test_a_batch_size_without_common_factors_permutes_all_rows(batch: int) -> None:
    order = Order((977,) * 200, batch, 3, window_steps(batch, 4))
    for epoch, world in ((0, 1), (1, 3)):
        seen = np.zeros(order.rows, dtype=np.int64)
        for rank in range(world):
            for window in order.windows(epoch, rank, world):
                runs = [run.block * 977 + np.arange(run.begin, run.begin + run.rows) for run in window.runs]
                rows = np.concatenate([np.empty(0, np.int64), *runs])
                assert window.gather is not None
                gathered = window.gather(None)
                assert len(gathered) == sum(window.sizes)
                np.add.at(seen, rows[gathered], 1)
        assert (seen == 1).all()


@given(orders.filter(lambda order: not order.shuffle), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_unshuffled_batches_have_the_rows_in_stored_order(order: Order, epoch: int) -> None:
    rows = [pair for _, batch in sorted(local_batches(order, epoch, 0, 1).items()) for pair in batch]
    assert rows == [(b, row) for b in range(len(order.blocks)) for row in sample(order, b, epoch)]


@given(orders.filter(lambda order: bool(order.weights)), st.integers(0, 5))
@settings(max_examples=100, deadline=None)
def test_a_row_is_drawn_in_proportion_to_its_weight_rounded_down_or_up(order: Order, epoch: int) -> None:
    counts = [Counter(sample(order, block, epoch)) for block in range(len(order.blocks))]
    assert sum(count.total() for count in counts) == order.rows, "an epoch keeps its length"
    mean = sum(order.weights) // order.rows
    for block, rows in enumerate(order.blocks):
        for row, weight in enumerate(row_weights(block, rows).tolist()):
            assert weight // mean <= counts[block][row] <= -(-weight // mean) or is_last(order, block, row)


def is_last(order: Order, block: int, row: int) -> bool:
    """Return whether a row is at the end, which the remainder of weights divided by rows is taken from."""
    weights = [int(w) for b, rows in enumerate(order.blocks) for w in row_weights(b, rows)]
    return sum(weights[sum(order.blocks[:block]) + row + 1 :]) < sum(weights) % order.rows


def test_rows_of_equal_weight_are_drawn_once_each() -> None:
    order = Order((50, 70), batch=8, seed=42, window=16, weights=(50, 70))
    rows = [0, 0]
    for window in order.windows(3, 0, 1):
        for run in window.runs:
            rows[run.block] += run.rows
    assert rows == [50, 70]
    assert order.sample_rows(0, 3, np.ones(50, np.int64)).tolist() == list(range(50))


def test_over_many_epochs_rows_are_drawn_in_proportion_to_their_weights() -> None:
    order = Order((50, 30), 10, 3, 64, weights=tuple(int(row_weights(b, n).sum()) for b, n in enumerate((50, 30))))
    epochs = 400
    counts = Counter((b, row) for epoch in range(epochs) for b in (0, 1) for row in sample(order, b, epoch))
    frequencies = np.array([counts[b, row] / epochs for b, n in enumerate((50, 30)) for row in range(n)])
    expected = np.concatenate([row_weights(0, 50), row_weights(1, 30)]) * 80 / sum(order.weights)
    assert np.abs(frequencies - expected).max() < 0.1


@pytest.mark.parametrize("world", [2, 8, 100, 512])
def test_few_workers_read_the_same_block(world: int) -> None:
    order = Order((1000,) * 2000, 64 * world, 7, window_steps(64 * world, 128))
    readers: dict[int, set[int]] = {}
    for rank in range(world):
        for window in order.windows(0, rank, world):
            for run in window.runs:
                readers.setdefault(run.block, set()).add(rank)
    mean = sum(len(ranks) for ranks in readers.values()) / len(readers)
    assert mean <= 2.5


def test_epochs_and_seeds_differ() -> None:
    order = Order((100, 100, 100), 10, 1, 64)
    first = global_batches(order, 0, 1)
    assert first != global_batches(order, 1, 1)
    assert first != global_batches(Order((100, 100, 100), 10, 2, 64), 0, 1)


def test_the_order_stays_the_same_between_releases() -> None:
    """A change of the order would break the resumption of a run."""
    batches = global_batches(Order((50, 70, 40), batch=8, seed=42, window=16), epoch=3, world=1)
    assert batches[0] == [(0, 5), (0, 26), (0, 34), (1, 23), (1, 52), (1, 67), (2, 12), (2, 30)]
    assert batches[19] == [(0, 38), (1, 0), (1, 9), (1, 30), (1, 39), (1, 48), (1, 57), (2, 8)]


def test_the_order_in_buckets_stays_the_same_between_releases() -> None:
    order = Order((50, 70, 40), batch=8, seed=42, window=16, bucket_by="tokens")
    batches = global_batches(order, epoch=3, world=1)
    assert batches[0] == [(0, 16), (0, 24), (0, 48), (1, 13), (1, 49), (2, 1), (2, 17), (2, 38)]
    assert batches[19] == [(0, 44), (1, 3), (1, 18), (1, 30), (1, 42), (1, 51), (1, 66), (2, 8)]


@pytest.mark.parametrize(
    ("options", "digest"),
    [
        ({}, "2fa99871"),
        ({"bucket_by": "tokens"}, "14d47d72"),
        ({"weights": (5000, 90, 700, 1)}, "f2f4129e"),
        ({"weights": (5000, 90, 700, 1), "bucket_by": "tokens"}, "4460af75"),
        ({"groups": (2, 2)}, "6055c732"),
        ({"shuffle": False}, "e39e24ae"),
    ],
)
def test_all_batches_of_a_worker_stay_the_same_between_releases(options: dict[str, Any], digest: str) -> None:
    order = Order((50, 70, 40, 300), batch=8, seed=42, window=16, **options)
    windows = [
        ([astuple(run) for run in window.runs], window.gather(measure(window.runs)).tolist() if window.gather else None)
        for window in order.windows(4, 1, 3)
    ]
    assert hashlib.sha256(json.dumps(windows).encode()).hexdigest()[:8] == digest


def measure(runs: tuple[Run, ...]) -> NDArray[np.int64]:
    """Return the lengths of the rows of some runs, end to end."""
    return np.concatenate([np.empty(0, np.int64), *(LENGTHS[run.block, run.begin :][: run.rows] for run in runs)])


def waste(order: Order) -> float:
    """Return the fraction of padded batches that is padding, over an epoch of one worker."""
    lengths = [np.array([LENGTHS[pair] for pair in batch]) for batch in local_batches(order, 0, 0, 1).values()]
    return 1 - sum(int(batch.sum()) for batch in lengths) / sum(len(batch) * int(batch.max()) for batch in lengths)


def test_buckets_remove_most_of_the_padding_and_batches_are_not_sorted_by_length() -> None:
    plain, bucketed = (Order((400,) * 30, 32, 7, window_steps(32, 80), bucket_by=by) for by in (None, "tokens"))
    assert waste(plain) > 0.6
    assert waste(bucketed) < waste(plain) / 2.5
    means = [np.mean([LENGTHS[pair] for pair in batch]) for batch in local_batches(bucketed, 0, 0, 1).values()]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3
