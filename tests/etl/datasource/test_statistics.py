"""Statistics gathered in parts equal those that NumPy computes at once."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from trainyard.etl.datasource.columns import Field
from trainyard.etl.datasource.statistics import MOST_VALUES, ColumnStatistics, merged, moments

LABEL = Field("label", "scalar", pa.int64(), ())


def numbers(width: int = 3):
    return hnp.arrays(
        np.float32, st.tuples(st.integers(1, 60), st.just(width)), elements=st.floats(-1e6, 1e6, width=32)
    )


@given(numbers(), st.lists(st.integers(0, 60), max_size=4))
def test_moments_of_parts_merge_to_the_moments_of_the_whole(values, cuts):
    total = None
    for part in np.split(values, sorted(min(cut, len(values)) for cut in cuts)):
        found = moments(part.reshape(len(part), 3, 1))
        total = found if total is None else total.merge(found)
    wide = values.astype(np.float64)
    assert total.count == len(values)
    np.testing.assert_allclose(total.mean, wide.mean(0), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(total.m2 / total.count, wide.var(0), rtol=1e-7, atol=1e-4)
    np.testing.assert_array_equal(total.min, wide.min(0))
    np.testing.assert_array_equal(total.max, wide.max(0))


@given(numbers(), st.integers(0, 60))
def test_statistics_of_two_partitions_merge_to_those_of_both(values, cut):
    column = Field("x", "tensor", pa.float32(), (3,))

    def figures(rows):
        found = ColumnStatistics()
        found.add(column, pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3))
        return found.result(column)

    parts = [part for part in np.split(values, [min(cut, len(values))]) if len(part)]
    found, whole = reduce(merged, map(figures, parts)), figures(values)
    assert (found.count, found.min, found.max) == (whole.count, whole.min, whole.max)
    np.testing.assert_allclose(found.mean, whole.mean, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(found.std, whole.std, rtol=1e-6, atol=1e-2)


def test_counts_of_values_merge_while_they_are_few():
    def figures(values):
        found = ColumnStatistics()
        found.add(LABEL, pa.array(values))
        return found.result(LABEL)

    assert merged(figures([10, 9, None]), figures([9, 2])).values == {"2": 1, "9": 2, "10": 1}
    assert merged(figures([10, 9, None]), figures([9, 2])).nulls == 1
    assert merged(figures(range(MOST_VALUES)), figures([-1])).values is None


def test_a_large_mean_does_not_swallow_a_small_deviation():
    values = 1e9 + np.tile([0.0, 1.0], 100_000)
    found = moments(values.reshape(-1, 1, 1))
    assert np.sqrt(found.m2 / found.count)[0] == pytest.approx(0.5, rel=1e-9)


def test_blocks_of_float32_are_summed_in_float64():
    values = np.random.default_rng(0).normal(3, 2, (30_000, 5)).astype(np.float32)
    found = moments(values.reshape(-1, 5, 1))
    np.testing.assert_allclose(found.mean, values.mean(0, dtype=np.float64), rtol=1e-12)
    np.testing.assert_allclose(found.m2 / found.count, values.var(0, dtype=np.float64), rtol=1e-10)


def test_elements_of_a_large_tensor_share_the_entry_of_their_first_axis():
    values = np.random.default_rng(0).normal(size=(7, 3, 50, 40)).astype(np.float32)
    column = Field("image", "tensor", pa.float32(), (3, 50, 40))
    statistics = ColumnStatistics()
    statistics.add(column, pa.FixedSizeListArray.from_arrays(values.ravel(), 6000))
    found = statistics.result(column)
    assert found.count == 7
    np.testing.assert_allclose(found.mean, values.mean((0, 2, 3), dtype=np.float64), rtol=1e-9)
    np.testing.assert_allclose(found.std, values.std((0, 2, 3), dtype=np.float64), rtol=1e-9)


def test_list_columns_count_elements():
    column = Field("tokens", "list", pa.int32(), ())
    statistics = ColumnStatistics()
    statistics.add(column, pa.array([[1, 2], [], [6]], pa.list_(pa.int32())))
    found = statistics.result(column)
    assert (found.count, found.mean, found.min, found.max) == (3, (3.0,), (1.0,), (6.0,))


def test_a_list_column_without_any_element_has_no_mean():
    column = Field("tokens", "list", pa.int32(), ())
    statistics = ColumnStatistics()
    statistics.add(column, pa.array([[], []], pa.list_(pa.int32())))
    assert (statistics.result(column).count, statistics.result(column).mean) == (0, ())


@given(st.lists(st.lists(st.integers(0, 5)), min_size=1))
def test_values_are_counted_across_parts(parts):
    total = ColumnStatistics()
    for part in parts:
        one = ColumnStatistics()
        one.add(LABEL, pa.array(part, pa.int64()))
        total = total.merge(one)
    every = [value for part in parts for value in part]
    assert total.result(LABEL).values == {str(value): every.count(value) for value in sorted(set(every))}


def test_values_are_given_up_when_there_are_too_many():
    one, other = ColumnStatistics(), ColumnStatistics()
    one.add(LABEL, pa.array(range(MOST_VALUES)))
    other.add(LABEL, pa.array([MOST_VALUES]))
    assert one.result(LABEL).values is not None
    assert one.merge(other).result(LABEL).values is None


def test_nulls_of_a_string_are_counted_apart():
    column = Field("city", "scalar", pa.string(), ())
    statistics = ColumnStatistics()
    statistics.add(column, pa.array(["b", None, "a", "b"]))
    found = statistics.result(column)
    assert (found.count, found.nulls, found.values) == (3, 1, {"a": 1, "b": 2})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_not_finite_shows_in_the_moments(bad):
    values = np.ones((10_000, 2, 1), np.float32)
    values[7777, 1] = bad
    assert not moments(values).finite
