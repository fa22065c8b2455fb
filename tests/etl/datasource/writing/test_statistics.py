"""Statistics that are merged from parts equal those that NumPy computes at once."""

from __future__ import annotations

import warnings
from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import Field
from trainyard.etl.datasource.writing.statistics import (
    MAX_ELEMENTS,
    MAX_VALUES,
    ColumnStatistics,
    compute_moments,
    merge_statistics,
)

LABEL = Field("label", "scalar", pa.int64(), ())


def make_arrays(width: int = 3):
    return hnp.arrays(
        np.float32, st.tuples(st.integers(1, 60), st.just(width)), elements=st.floats(-1e6, 1e6, width=32)
    )


@given(make_arrays(), st.lists(st.integers(0, 60), max_size=4))
def test_merged_moments_of_parts_equal_the_moments_of_all_rows(values, cuts):
    total = None
    for part in np.split(values, sorted(min(cut, len(values)) for cut in cuts)):
        moments = compute_moments(part.reshape(len(part), 3, 1))
        total = moments if total is None else total.merge(moments)
    wide = values.astype(np.float64)
    assert total.count == len(values)
    np.testing.assert_allclose(total.mean, wide.mean(0), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(total.m2 / total.count, wide.var(0), rtol=1e-7, atol=1e-4)
    np.testing.assert_array_equal(total.min, wide.min(0))
    np.testing.assert_array_equal(total.max, wide.max(0))


@given(make_arrays(), st.integers(0, 60))
def test_merged_statistics_of_two_partitions_equal_those_of_all_rows(values, cut):
    column = Field("x", "tensor", pa.float32(), (3,))

    def compute(rows):
        statistics = ColumnStatistics()
        statistics.add(column, pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3))
        return statistics.summarize(column)

    parts = [part for part in np.split(values, [min(cut, len(values))]) if len(part)]
    merged, expected = reduce(merge_statistics, map(compute, parts)), compute(values)
    assert (merged.count, merged.min, merged.max) == (expected.count, expected.min, expected.max)
    np.testing.assert_allclose(merged.mean, expected.mean, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(merged.std, expected.std, rtol=1e-6, atol=1e-2)


def test_counts_of_values_are_merged_up_to_a_limit():
    def compute(values):
        statistics = ColumnStatistics()
        statistics.add(LABEL, pa.array(values))
        return statistics.summarize(LABEL)

    merged = merge_statistics(compute([10, 9, None]), compute([9, 9, 2, None]))
    assert merged.values == {"2": 1, "9": 3, "10": 1} and merged.nulls == 2
    assert list(merged.values) == ["2", "9", "10"], "numbers are in numeric order"
    many = merge_statistics(compute(range(MAX_VALUES)), compute([-1]))
    assert many.values is None
    assert merge_statistics(many, compute([1])).values is merge_statistics(compute([1]), many).values is None


def test_a_large_mean_does_not_hide_a_small_deviation():
    values = 1e9 + np.tile([0.0, 1.0], 100_000)
    moments = compute_moments(values.reshape(-1, 1, 1))
    assert np.sqrt(moments.m2 / moments.count)[0] == pytest.approx(0.5, rel=1e-9)


def test_blocks_of_float32_are_summed_in_float64():
    values = np.random.default_rng(0).normal(3, 2, (30_000, 5)).astype(np.float32)
    moments = compute_moments(values.reshape(-1, 5, 1))
    np.testing.assert_allclose(moments.mean, values.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(moments.m2 / moments.count, values.var(0, dtype=np.float64), rtol=1e-10)


def test_elements_of_a_large_tensor_share_the_entry_of_their_first_axis():
    values = np.random.default_rng(0).normal(size=(7, 3, 50, 40)).astype(np.float32)
    column = Field("image", "tensor", pa.float32(), (3, 50, 40))
    statistics = ColumnStatistics()
    statistics.add(column, pa.FixedSizeListArray.from_arrays(values.ravel(), 6000))
    summary = statistics.summarize(column)
    assert summary.count == 7
    np.testing.assert_allclose(summary.mean, values.mean((0, 2, 3), dtype=np.float64), rtol=1e-9)
    np.testing.assert_allclose(summary.std, values.std((0, 2, 3), dtype=np.float64), rtol=1e-9)


def test_the_count_of_a_list_column_is_its_elements():
    column = Field("tokens", "list", pa.int32(), ())
    statistics = ColumnStatistics()
    statistics.add(column, pa.array([[1, 2], [], [6]], pa.list_(pa.int32())))
    summary = statistics.summarize(column)
    assert (summary.count, summary.mean, summary.min, summary.max) == (3, (3.0,), (1.0,), (6.0,))


def test_a_list_column_without_elements_has_no_mean():
    column = Field("tokens", "list", pa.int32(), ())
    statistics = ColumnStatistics()
    statistics.add(column, pa.array([[], []], pa.list_(pa.int32())))
    assert (statistics.summarize(column).count, statistics.summarize(column).mean) == (0, ())


@given(st.lists(st.lists(st.integers(0, 5)), min_size=1))
def test_counts_of_values_are_added_over_parts(parts):
    total = ColumnStatistics()
    for part in parts:
        statistics = ColumnStatistics()
        statistics.add(LABEL, pa.array(part, pa.int64()))
        total = total.merge(statistics)
    values = [value for part in parts for value in part]
    assert total.summarize(LABEL).values == {str(value): values.count(value) for value in sorted(set(values))}


def test_values_are_not_counted_beyond_a_limit():
    one, other = ColumnStatistics(), ColumnStatistics()
    one.add(LABEL, pa.array(range(MAX_VALUES)))
    other.add(LABEL, pa.array([MAX_VALUES]))
    assert one.summarize(LABEL).values is not None
    assert one.merge(other).summarize(LABEL).values is None


def test_values_that_are_texts_are_in_alphabetical_order_before_positive_numbers():
    column = Field("city", "scalar", pa.string(), ())

    def compute(values):
        statistics = ColumnStatistics()
        statistics.add(column, pa.array(values))
        return statistics.summarize(column)

    merged = merge_statistics(compute(["b", "b", "0.5"]), compute(["c", "a", "a", "a"]))
    assert list(merged.values.items()) == [("a", 3), ("b", 2), ("c", 1), ("0.5", 1)]


def test_values_of_booleans_are_true_and_false():
    column = Field("flag", "scalar", pa.bool_(), ())
    statistics = ColumnStatistics()
    statistics.add(column, pa.array([True, False, True]))
    assert statistics.summarize(column).values == {"false": 1, "true": 2}


@given(st.lists(st.lists(st.integers(-9, 9), min_size=1), min_size=1), st.integers(0, 9))
def test_statistics_of_batches_and_tasks_equal_those_of_all_rows(batches, cut):
    def compute(parts):
        statistics = ColumnStatistics()
        for part in parts:
            statistics.add(LABEL, pa.array(part))
        return statistics

    tasks = [compute(part) for part in (batches[:cut], batches[cut:])]
    merged, together = tasks[0].merge(tasks[1]), compute([[value for part in batches for value in part]])
    assert (merged.rows, merged.values) == (together.rows, together.values)
    summary, expected = merged.summarize(LABEL), together.summarize(LABEL)
    assert (summary.count, summary.values, summary.min) == (expected.count, expected.values, expected.min)
    assert (summary.mean, summary.std) == (pytest.approx(expected.mean), pytest.approx(expected.std, abs=1e-9))


def test_nulls_of_batches_and_tasks_are_added():
    column = Field("day", "scalar", pa.string(), ())
    one, other = ColumnStatistics(), ColumnStatistics()
    for statistics in (one, one, other):
        statistics.add(column, pa.array(["a", None]))
    assert (one.merge(other).rows, one.merge(other).nulls) == (6, 3)


def test_a_time_that_python_cannot_represent_is_refused():
    far = pa.array([9_000_000], pa.date32()).cast(pa.timestamp("us", "UTC"))
    with pytest.raises(TrainyardError, match="column 'at' has a date or a time outside of the years 1 to 9999"):
        ColumnStatistics().add(Field("at", "scalar", far.type, ()), far)


def test_values_of_a_tensor_are_not_counted():
    column = Field("x", "tensor", pa.float32(), (1,))
    statistics = ColumnStatistics()
    for _ in range(2):
        statistics.add(column, pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0], pa.float32()), 1))
    assert statistics.values is None
    assert statistics.merge(ColumnStatistics()).values is ColumnStatistics().merge(statistics).values is None


def test_a_tensor_of_the_most_elements_has_an_entry_for_each():
    column = Field("x", "tensor", pa.float32(), (2, MAX_ELEMENTS // 2))
    statistics = ColumnStatistics()
    statistics.add(column, pa.FixedSizeListArray.from_arrays(np.zeros(MAX_ELEMENTS, np.float32), MAX_ELEMENTS))
    assert len(statistics.summarize(column).mean) == MAX_ELEMENTS


@pytest.mark.parametrize(
    ("shape", "entries"), [((2, MAX_ELEMENTS), 2), ((MAX_ELEMENTS + 1,), 1), ((MAX_ELEMENTS + 1, 2), 1)]
)
def test_a_larger_tensor_has_an_entry_for_each_channel_or_one_for_all(shape, entries):
    column, statistics = Field("x", "tensor", pa.float32(), shape), ColumnStatistics()
    rows = np.random.default_rng(0).normal(3, 2, (2, *shape)).astype(np.float32)
    statistics.add(column, pa.FixedSizeListArray.from_arrays(rows.ravel(), rows[0].size))
    channels = np.moveaxis(rows, 1, 0).reshape(entries, -1).astype(np.float64)
    summary = statistics.summarize(column)
    assert summary.mean == pytest.approx(channels.mean(1)) and summary.std == pytest.approx(channels.std(1))
    assert summary.min == pytest.approx(channels.min(1)) and summary.max == pytest.approx(channels.max(1))


def test_nulls_of_a_string_are_counted_separately():
    column = Field("city", "scalar", pa.string(), ())
    statistics = ColumnStatistics()
    statistics.add(column, pa.array(["b", None, "a", "b"]))
    summary = statistics.summarize(column)
    assert (summary.count, summary.nulls, summary.values) == (3, 1, {"a": 1, "b": 2})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_moments_with_a_value_that_is_not_finite_are_not_finite(bad):
    values = np.ones((10_000, 2, 1), np.float32)
    values[7777, 1] = bad
    with warnings.catch_warnings(action="error"):
        assert not compute_moments(values).finite
