"""`Dataset` in torch's DataLoader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.trainer.data.dataset import Dataset

ROWS = 103


@pytest.fixture
def uri(tmp_path: Path) -> str:
    rows = {"x": np.arange(2 * ROWS, dtype=np.float32).reshape(ROWS, 2), "id": np.arange(ROWS)}
    return datasets.write(tmp_path / "d", {"train": rows}, rows_per_batch=16)


def ids(batches: list[dict[str, torch.Tensor]]) -> list[int]:
    return [int(row) for batch in batches for row in batch["id"]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_yields_every_row_once(uri: str, workers: int) -> None:
    loader = DataLoader(Dataset(uri, batch_size=20), batch_size=None, num_workers=workers)
    batches = list(loader)
    assert len(batches) == len(loader) == 6
    assert sorted(ids(batches)) == list(range(ROWS))
    assert batches[0]["x"].shape == (20, 2) and batches[0]["x"].dtype == torch.float32
    assert all((batch["x"][:, 0] == 2 * batch["id"]).all() for batch in batches)


def test_each_epoch_has_its_own_order(uri: str) -> None:
    data = Dataset(uri, batch_size=20)
    first, second = ids(list(data)), ids(list(data))
    assert first != second
    data.set_epoch(0)
    assert ids(list(data)) == first
    assert ids(list(Dataset(uri, batch_size=20, shuffle=False))) == list(range(ROWS))


@pytest.mark.parametrize("world", [2, 4])
def test_workers_share_each_global_batch_and_have_the_same_number_of_steps(uri: str, world: int) -> None:
    alone = list(Dataset(uri, batch_size=20))
    local = [list(Dataset(uri, batch_size=20, rank=rank, world=world)) for rank in range(world)]
    steps = {len(batches) for batches in local}
    assert steps == {6 if world == 2 else 5}, "the last batch has three rows"
    for step in range(min(steps)):
        together = [row for batches in local for row in ids([batches[step]])]
        assert sorted(together) == sorted(ids([alone[step]]))


def test_an_iteration_resumes_at_its_saved_state(uri: str) -> None:
    data, resumed = Dataset(uri, batch_size=20), Dataset(uri, batch_size=20)
    data.set_epoch(3)
    iteration = iter(data)
    for _ in range(2):
        next(iteration)
    resumed.load_state_dict(data.state_dict())
    assert len(resumed) == 4
    assert ids(list(resumed)) == ids(list(iteration))
    assert ids(list(resumed)) == ids(list(data)), "the next epoch"


def test_a_loop_that_counts_batches_gets_the_whole_next_epoch(uri: str) -> None:
    data = Dataset(uri, batch_size=20)
    iteration = iter(data)
    first = [next(iteration) for _ in range(len(data))]
    assert ids(first) == ids(list(Dataset(uri, batch_size=20)))
    assert data.state_dict() == {"epoch": 1, "step": 0}
    assert sorted(ids(list(data))) == list(range(ROWS))


def test_a_transform_gets_whole_batches(uri: str) -> None:
    doubled = Dataset(uri, columns=["x"], batch_size=20, transform=lambda batch: {"x": batch["x"] * 2})
    assert sum(float(batch["x"].sum()) for batch in doubled) == 2 * sum(range(2 * ROWS))


def test_several_workers_are_refused(uri: str) -> None:
    with pytest.raises(TrainyardError, match="num_workers=2: each worker of the DataLoader would read every batch"):
        list(DataLoader(Dataset(uri, batch_size=20), batch_size=None, num_workers=2))
