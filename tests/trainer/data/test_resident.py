"""Batches from a split on the device are those of any other loader. The device is a CPU here; tests/gpu has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer import datasets
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data.loader import Loader, LocalBatch, build_order
from trainyard.trainer.data.mixture import Portion, build_reader
from trainyard.trainer.data.resident import ResidentLoader
from trainyard.trainer.data.weights import build_weights
from trainyard.trainer.world import World

CPU = torch.device("cpu")
ROWS = 211


def rows(count: int, seed: int = 0) -> datasets.Columns:
    numbers = np.arange(count)
    return datasets.blobs(count, seed) | {"row": numbers + 1000 * seed, "weight": 1.0 + numbers % 7}


@pytest.fixture(scope="module")
def uris(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("resident")
    small = datasets.write(folder / "small", {"train": rows(31, 1)})
    return datasets.write(folder / "large", {"train": rows(ROWS)}, rows_per_batch=16, shards=3), small


def read(uris: tuple[str, str], mixed: bool = False, weighted: bool = False, batch: int = 20) -> tuple[Any, ...]:
    """Return the arguments of a loader: the rows, their order, and the weights."""
    manifest, other = map(manifests.read_current, uris)
    mix = [Portion(uris[1], 0.3, other)] if mixed else []
    data = build_reader(uris[0], manifest, "train", ("x", "label", "row", "weight"), mix)
    weights = build_weights(data, None, "weight" if weighted else None, World(), lambda: None)
    return data, build_order(data, batch, 0, True, None, weights), weights


def list_batches(loader: Loader, epoch: int, step: int) -> list[tuple[int, int, int, dict[str, Any]]]:
    def describe(batch: LocalBatch) -> tuple[int, int, int, dict[str, Any]]:
        values = {name: column.tolist() for name, column in batch.columns.items()}
        return batch.step, batch.rows, batch.total, values

    return [describe(batch) for batch in loader.epoch(epoch, step)]


@pytest.mark.slow
@settings(max_examples=40)
@given(st.data())
def test_every_worker_has_the_batches_of_a_loader_that_reads_them(uris: tuple[str, str], data: st.DataObject) -> None:
    world = data.draw(st.sampled_from([1, 2, 7]))
    rank, epoch = data.draw(st.integers(0, world - 1)), data.draw(st.integers(0, 3))
    split, order, weights = read(
        uris, data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.integers(1, 60))
    )
    step = data.draw(st.integers(0, order.steps))
    expected = list_batches(Loader(split, order, rank, world, weights=weights), epoch, step)
    assert list_batches(ResidentLoader(split, order, rank, world, CPU, weights), epoch, step) == expected


@pytest.mark.parametrize("sampling", [{}, {"weighted": True}, {"mixed": True}])
def test_the_split_is_read_once(
    uris: tuple[str, str], monkeypatch: pytest.MonkeyPatch, sampling: dict[str, bool]
) -> None:
    split, order, weights = read(uris, **sampling)
    blocks: list[int] = []
    monkeypatch.setattr(split, "block", lambda number, read=split.block: blocks.append(number) or read(number))
    loader = ResidentLoader(split, order, 0, 1, CPU, weights)
    for epoch in range(3):
        list(loader.epoch(epoch))
    assert blocks == list(range(len(split.blocks)))


def test_progress_is_reported_while_the_split_is_copied(uris: tuple[str, str]) -> None:
    split, order, _ = read(uris)
    reports: list[None] = []
    loader = ResidentLoader(split, order, 0, 1, CPU, on_progress=lambda: reports.append(None))
    next(iter(loader.epoch(0)))
    assert len(reports) == len(split.blocks)


def test_a_batch_is_a_copy_that_may_be_changed(uris: tuple[str, str]) -> None:
    split, order, _ = read(uris)
    loader = ResidentLoader(split, order, 0, 1, CPU)
    for batch in loader.epoch(0):
        batch.columns["x"].zero_()
    assert all(bool(batch.columns["x"].any()) for batch in loader.epoch(1))


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16", "uint32", "uint64", "float16", "float64"])
def test_columns_of_all_types_are_gathered(tmp_path: Path, dtype: str) -> None:
    values = (np.arange(80) % 7).astype(dtype).reshape(40, 2)
    uri = datasets.write(tmp_path, {"train": {"x": values, "row": np.arange(40)}})
    split = build_reader(uri, manifests.read_current(uri), "train", ("x", "row"))
    order = build_order(split, 7, 0, True, None, None)
    for batch in ResidentLoader(split, order, 0, 1, CPU).epoch(0):
        assert batch.columns["x"].dtype == getattr(torch, dtype)
        assert batch.columns["x"].tolist() == values[batch.columns["row"].numpy()].tolist()


def test_a_column_of_weights_is_not_in_batches_that_do_not_need_it(uris: tuple[str, str]) -> None:
    data, order, weights = read(uris, weighted=True)
    resident = ResidentLoader(data, order, 0, 1, CPU, weights, columns=("x", "row"))
    loader = Loader(data, order, weights=weights, columns=("x", "row"))
    assert list_batches(resident, 0, 0) == list_batches(loader, 0, 0)
    assert set(next(resident.epoch(0)).columns) == {"x", "row"}
