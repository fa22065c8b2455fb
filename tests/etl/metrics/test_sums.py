"""Sums of many tasks are merged in ranges of cells, in memory that does not grow with the tasks."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainyard.errors import TrainyardError
from trainyard.etl.metrics import build_families
from trainyard.etl.metrics import sums as sums_of
from trainyard.etl.metrics.family import OutputSpec, ScoredRows
from trainyard.etl.metrics.rows import RowCount
from trainyard.etl.metrics.sums import (
    ALL_ROWS,
    RANGE_CELLS,
    SCHEMA,
    Key,
    Slice,
    SparseSums,
    SumAccumulator,
    merge_sums,
    to_dense,
    to_table,
)

KEYS = [Key(0, "scores", ALL_ROWS), Key(1, "scores", Slice("of", "a"))]


def build_sums(seed: int, cells: int, top: int) -> dict[Key, SparseSums]:
    """Return the sums of one task, with about so many cells that are not empty of `top`."""
    rng = np.random.default_rng(seed)
    numbers = {key: np.unique(rng.integers(0, top, cells)) for key in KEYS}
    return {key: (cells, rng.integers(1, 9, len(cells)).astype(np.float64)) for key, cells in numbers.items()}


@pytest.mark.slow
@settings(max_examples=20)
@given(seeds=st.lists(st.integers(0, 99), min_size=1, max_size=8), cells=st.sampled_from([1, 50, 20_000]))
def test_ranges_that_are_merged_apart_are_the_sums_of_all(seeds: list[int], cells: int) -> None:
    tables = [to_table(build_sums(seed, cells, RANGE_CELLS * 3)) for seed in seeds]
    expected = {key: np.zeros(RANGE_CELLS * 3) for key in KEYS}
    for seed in seeds:
        for key, (numbers, values) in build_sums(seed, cells, RANGE_CELLS * 3).items():
            expected[key][numbers] += values
    parts = []
    for number in range(3):  # each on a task of its own
        selected = [table.filter(pc.equal(table.column("range"), number)) for table in tables]
        parts.append(to_table(merge_sums(selected)))
    for merged in (merge_sums(parts), merge_sums(tables)):
        for key in KEYS:
            numbers, values = merged[key]
            assert (np.diff(numbers) > 0).all()
            dense = np.zeros(RANGE_CELLS * 3)
            dense[numbers] = values
            assert (dense == expected[key]).all()


@pytest.mark.slow
@pytest.mark.parametrize(("keys", "cells"), [(2, 5000), (100, 2000)])
@pytest.mark.parametrize("tables", [10, 100])
def test_a_merge_takes_the_memory_of_its_result_and_of_one_table(tables: int, keys: int, cells: int) -> None:
    """Joining the ranges of a key takes the memory of that key once more."""
    rng = np.random.default_rng(0)
    every = [Key(0, "scores", Slice("of", str(number))) for number in range(keys)]
    sums = {key: (np.unique(rng.integers(0, cells * 40, cells)), np.ones(cells)) for key in every}
    sums = {key: (numbers, values[: len(numbers)]) for key, (numbers, values) in sums.items()}
    arrow = pa.total_allocated_bytes()
    held = 0

    def read() -> Iterator[pa.RecordBatch]:
        nonlocal held
        for _ in range(tables):
            yield to_table(sums)
            held = max(held, pa.total_allocated_bytes() - arrow)

    size = sum(part.nbytes for sparse in merge_sums(read()).values() for part in sparse)
    tracemalloc.start()
    merge_sums(read())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * size + (1 << 19) and held < 3 * size
    assert pa.total_allocated_bytes() == arrow


def test_rows_of_a_batch_are_added_in_any_order_of_their_buckets() -> None:
    for buckets in itertools.product(range(3), repeat=4):
        accumulator = SumAccumulator([(RowCount(),)])
        everything = np.full(2, accumulator.number_slice(ALL_ROWS))
        for batch in (buckets[:2], buckets[2:]):
            accumulator.add(0, ScoredRows(np.zeros(2), np.zeros(2)), [everything], np.array(batch))
        sums = merge_sums([accumulator.to_table()])[Key(0, "rows", ALL_ROWS)]
        assert to_dense(sums, (1,))[:3, 0].tolist() == [float(buckets.count(bucket)) for bucket in range(3)]


def test_small_batches_do_not_accumulate_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums_of, "_MAX_PENDING", 1 << 10)
    accumulator = SumAccumulator([(RowCount(),)])
    everything = np.full(1, accumulator.number_slice(ALL_ROWS))
    rows, bucket = ScoredRows(np.zeros(1), np.zeros(1)), np.zeros(1, np.int64)
    tracemalloc.start()
    for _ in range(900):
        accumulator.add(0, rows, [everything], bucket)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert merge_sums([accumulator.to_table()])[Key(0, "rows", ALL_ROWS)][1].tolist() == [900]
    assert used < 100_000


def test_the_number_of_slices_is_limited() -> None:
    accumulator = SumAccumulator([(RowCount(),)])
    for number in range(sums_of.MAX_SLICES + 1):
        accumulator.number_slice(Slice("of", str(number)))
    with pytest.raises(TrainyardError, match="slices= results in more than 1,000 slices; use columns with fewer"):
        accumulator.number_slice(ALL_ROWS)


def test_sums_of_slices_are_those_of_their_rows() -> None:
    accumulator = SumAccumulator([(RowCount(),)])
    slices = [accumulator.number_slice(Slice("of", value)) for value in "abc"]
    rows = ScoredRows(np.zeros(6), np.zeros(6))
    accumulator.add(0, rows, [np.array(slices)[[1, 1, 2, 2, 2, 1]]], np.array([0, 3, 3, 49, 49, 0]))
    sums = merge_sums([accumulator.to_table()])
    assert {key.slice.value: [part.tolist() for part in sparse] for key, sparse in sums.items()} == {
        "b": [[0, 3], [2, 1]],
        "c": [[3, 49], [1, 2]],
    }


def test_a_table_without_rows_has_the_schema() -> None:
    assert to_table({}).schema == SCHEMA and merge_sums([to_table({})]) == {}


def test_a_task_whose_rows_add_nothing_to_a_metric_has_no_sums_of_it() -> None:
    """All of its labels are those that the loss ignores."""
    (family,) = build_families(["accuracy"], OutputSpec((2,), (), 2, "softmax", ignored=-100))
    accumulator = SumAccumulator([(RowCount(), family)])
    everything = np.full(3, accumulator.number_slice(ALL_ROWS))
    accumulator.add(0, ScoredRows(np.zeros((3, 2)), np.full(3, -100)), [everything], np.zeros(3, np.int64))
    assert [key.statistic for key in merge_sums([accumulator.to_table()])] == ["rows"]
