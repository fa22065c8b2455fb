"""Variable-length rows, compared with lists of lists."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainyard.trainer.data.reading.jagged import Jagged, build_ranges, concatenate, mask_name, slice_rows, to_tensors

rows = st.lists(st.lists(st.integers(-9, 9), max_size=5), min_size=1, max_size=8)


def build(lists: list[list[int]]) -> Jagged:
    return Jagged.from_rows([np.array(row, dtype=np.int32) for row in lists])


def lists(jagged: Jagged) -> list[list[int]]:
    return [row.tolist() for row in np.split(jagged.pack(), np.cumsum(jagged.lengths)[:-1])]


@given(rows, st.data())
def test_rows_are_selected_and_repeated(values: list[list[int]], data: st.DataObject) -> None:
    selection = data.draw(st.lists(st.integers(0, len(values) - 1)))
    assert lists(build(values)[np.array(selection, dtype=np.int64)])[: len(selection)] == [values[i] for i in selection]


@given(st.lists(rows, min_size=1, max_size=4), st.data())
def test_parts_are_concatenated(parts: list[list[list[int]]], data: st.DataObject) -> None:
    begins = [data.draw(st.integers(0, len(part) - 1)) for part in parts]
    result = concatenate([build(part)[begin:] for part, begin in zip(parts, begins, strict=True)])
    assert lists(result) == [row for part, begin in zip(parts, begins, strict=True) for row in part[begin:]]


@given(rows)
def test_padding_is_zero_and_masked(values: list[list[int]]) -> None:
    batch = to_tensors("x", build(values), "padded")
    longest = max(len(row) for row in values)
    assert batch["x"].tolist() == [row + [0] * (longest - len(row)) for row in values]
    assert batch[mask_name("x")].tolist() == [[True] * len(row) + [False] * (longest - len(row)) for row in values]
    assert batch["x"].dtype == torch.int32


@given(rows, st.data())
def test_nested_rows_equal_those_of_torch_and_can_be_sliced(values: list[list[int]], data: st.DataObject) -> None:
    nested = to_tensors("x", build(values), "nested")["x"]
    assert [row.tolist() for row in nested.unbind()] == values
    begin = data.draw(st.integers(0, len(values) - 1))
    end = data.draw(st.integers(begin + 1, len(values)))
    assert [row.tolist() for row in slice_rows(nested, begin, end).unbind()] == values[begin:end]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4))))
def test_ranges_are_built_end_to_end(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    assert build_ranges(starts, lengths).tolist() == [
        n for start, length in pairs for n in range(start, start + length)
    ]
