"""Columns of the same type are copied together, and come out as if each was copied by itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer import datasets
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data.loader import Loader, LocalBatch, build_order
from trainyard.trainer.data.mixture import Mixture
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.data.weights import Weights

TYPES = ("float32", "float64", "int8", "int64", "uint16", "bool")
KINDS = [(kind, shape) for kind in TYPES for shape in ((), (2,))]


@st.composite
def tables(draw: st.DrawFn) -> tuple[datasets.Columns, list[str]]:
    """Return columns whose values follow from the number of the row, and some of their names, in any order."""
    rows = draw(st.sampled_from([1, 2, 37, 64, 101, 211]))
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=12))
    columns: datasets.Columns = {"row": np.arange(rows, dtype=np.int64)}
    for number, (kind, shape) in enumerate(kinds):
        columns[f"c{number}"] = compute_values(np.arange(rows), number, kind, shape)
    names = draw(st.lists(st.sampled_from(list(columns)), unique=True))
    return columns, [*names, *({"row"} - set(names))]


def compute_values(rows: np.ndarray, number: int, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    values = (rows * 7 + number * 13) % 101
    return (np.stack([values] * shape[0], 1) if shape else values).astype(kind)


def open_split(folder: Path, columns: datasets.Columns, *names: str) -> SplitReader:
    shards = min(2, len(next(iter(columns.values()))))
    uri = datasets.write(folder, {"train": columns}, rows_per_batch=16, shards=shards)
    return SplitReader(uri, manifests.read_current(uri), "train", names)


def load(data: SplitReader | Mixture, batch: int, workers: int, shuffle: bool) -> Iterator[list[LocalBatch]]:
    order = build_order(data, batch, seed=3, shuffle=shuffle, bucket_by=None, weights=None)
    for rank in range(workers):
        yield list(Loader(data, order, rank, workers).epoch(1))


@pytest.mark.slow
@given(tables(), st.sampled_from([1, 5, 32, 300]), st.integers(1, 3), st.booleans())
@settings(deadline=None, max_examples=60)
def test_each_column_of_a_batch_has_the_values_of_its_rows(
    table: tuple[datasets.Columns, list[str]], batch: int, workers: int, shuffle: bool
) -> None:
    columns, names = table
    with TemporaryDirectory() as folder:
        by_worker = load(open_split(Path(folder), columns, *names), batch, workers, shuffle)
        batches = list(chain.from_iterable(by_worker))
        seen = []
        for local in batches:  # all of them are kept until here
            assert list(local.columns) == names
            rows = local.columns["row"].numpy()
            seen += rows[: local.rows].tolist()
            for name, values in local.columns.items():
                assert values.is_contiguous()
                expected = np.asarray(columns[name])[rows]
                assert values.numpy().dtype == expected.dtype and np.array_equal(values.numpy(), expected)
    assert sorted(seen) == list(range(len(columns["row"])))


def test_a_batch_that_is_changed_in_place_changes_no_other(tmp_path: Path) -> None:
    columns: datasets.Columns = {f"c{number}": np.arange(100, dtype=np.float32) for number in range(20)}
    [batches] = load(open_split(tmp_path, columns, *columns), 10, workers=1, shuffle=True)
    before = [{name: values.clone() for name, values in batch.columns.items()} for batch in batches]
    batches[3].columns["c4"].zero_()
    for number, batch in enumerate(batches):
        for name, values in batch.columns.items():
            assert values.equal(before[number][name]) == ((number, name) != (3, "c4"))


def floats(count: int) -> datasets.Columns:
    return {f"c{number}": np.full(50, number, np.float32) for number in range(count)}


def test_columns_beside_each_other_are_selected_without_a_copy(tmp_path: Path) -> None:
    block = open_split(tmp_path, floats(5), "c1", "c2", "c3").block(0)
    selected = block.select(("c1", "c2", "c3"), slice(2, 9))
    assert np.shares_memory(selected, block["c2"]) and not selected.flags.writeable
    assert np.array_equal(selected, [[1.0] * 7, [2.0] * 7, [3.0] * 7])


@pytest.mark.parametrize("names", [("c3", "c1", "c2"), ("c0", "c1", "c3"), ("c0", "c2", "c4", "c3")])
def test_columns_in_another_order_are_copied(tmp_path: Path, names: tuple[str, ...]) -> None:
    block = open_split(tmp_path, floats(5), *names).block(0)
    selected = block.select(names, np.array([4, 0, 4]))
    assert np.array_equal(selected, [[float(name[1])] * 3 for name in names])


def test_datasets_with_their_columns_in_another_order_are_mixed(tmp_path: Path) -> None:
    columns = floats(4) | {"row": np.arange(50)}
    other = {name: columns[name] for name in ("c3", "row", "c0", "c1", "c2")}
    parts = [open_split(tmp_path / name, table, *columns) for name, table in (("a", columns), ("b", other))]
    [batches] = load(Mixture(parts, (0.5, 0.5)), 16, workers=1, shuffle=True)
    for name in floats(4):
        assert {value for batch in batches for value in batch.columns[name].tolist()} == {float(name[1])}


def test_weighted_rows_are_drawn_from_all_columns(tmp_path: Path) -> None:
    columns: datasets.Columns = {f"c{number}": np.arange(60, dtype=np.int64) for number in range(6)}
    data = open_split(tmp_path, columns, *columns)
    weights = Weights(lambda block, _: np.full(data.blocks[block], 1000), tuple(1000 * n for n in data.blocks))
    order = build_order(data, 7, seed=0, shuffle=True, bucket_by=None, weights=weights)
    for batch in Loader(data, order, weights=weights).epoch(0):
        assert all(values.equal(batch.columns["c0"]) for values in batch.columns.values())
