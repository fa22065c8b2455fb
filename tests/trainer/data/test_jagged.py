"""Rows that differ in length, against lists of lists."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainyard.trainer.data.jagged import Jagged, joined, mask, part, spans, tensors

rows = st.lists(st.lists(st.integers(-9, 9), max_size=5), min_size=1, max_size=8)


def made(lists: list[list[int]]) -> Jagged:
    return Jagged.of([np.array(row, dtype=np.int32) for row in lists])


def lists(jagged: Jagged) -> list[list[int]]:
    return [row.tolist() for row in np.split(jagged.packed(), np.cumsum(jagged.lengths)[:-1])]


@given(rows, st.data())
def test_rows_are_chosen_and_repeated(given: list[list[int]], data: st.DataObject) -> None:
    chosen = data.draw(st.lists(st.integers(0, len(given) - 1)))
    assert lists(made(given)[np.array(chosen, dtype=np.int64)])[: len(chosen)] == [given[i] for i in chosen]


@given(st.lists(rows, min_size=1, max_size=4), st.data())
def test_parts_of_several_are_joined(given: list[list[list[int]]], data: st.DataObject) -> None:
    begins = [data.draw(st.integers(0, len(part) - 1)) for part in given]
    together = joined([made(part)[begin:] for part, begin in zip(given, begins, strict=True)])
    assert lists(together) == [row for part, begin in zip(given, begins, strict=True) for row in part[begin:]]


@given(rows)
def test_padded_rows_are_zero_behind_their_end(given: list[list[int]]) -> None:
    batch = tensors("x", made(given), "padded")
    longest = max(len(row) for row in given)
    assert batch["x"].tolist() == [row + [0] * (longest - len(row)) for row in given]
    assert batch[mask("x")].tolist() == [[True] * len(row) + [False] * (longest - len(row)) for row in given]
    assert batch["x"].dtype == torch.int32


@given(rows, st.data())
def test_nested_rows_are_those_of_torch_and_can_be_cut(given: list[list[int]], data: st.DataObject) -> None:
    nested = tensors("x", made(given), "nested")["x"]
    assert [row.tolist() for row in nested.unbind()] == given
    begin = data.draw(st.integers(0, len(given) - 1))
    end = data.draw(st.integers(begin + 1, len(given)))
    assert [row.tolist() for row in part(nested, begin, end).unbind()] == given[begin:end]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4))))
def test_spans_are_ranges_end_to_end(given: list[tuple[int, int]]) -> None:
    starts, lengths = np.array(given, dtype=np.int64).reshape(-1, 2).T
    assert spans(starts, lengths).tolist() == [n for start, length in given for n in range(start, start + length)]
