"""`Dataset` in torch's DataLoader."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.data.mixture import Portion

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


def position(data: Dataset) -> tuple[int, int]:
    state = data.state_dict()
    return state["epoch"], state["step"]


def build_loader(data: Dataset, workers: int, persistent: bool) -> DataLoader[dict[str, torch.Tensor]]:
    return DataLoader(data, batch_size=None, num_workers=workers, persistent_workers=persistent)


WORKERS = pytest.mark.parametrize(("workers", "persistent"), [(0, False), (1, False), (1, True)])


@WORKERS
def test_each_iteration_of_a_data_loader_is_the_next_epoch(uri: str, workers: int, persistent: bool) -> None:
    data = Dataset(uri, batch_size=20)
    expected = [ids(list(data)) for _ in range(4)]
    assert len({tuple(epoch) for epoch in expected}) == 4
    data = Dataset(uri, batch_size=20)
    loader = build_loader(data, workers, persistent)
    assert [ids(list(loader)) for _ in range(2)] == expected[:2]
    data.set_epoch(1)
    assert [ids(list(loader)) for _ in range(3)] == expected[1:], "also after set_epoch, with the same workers"


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"weight_by": "id"}, {"balance": "id"}])
def test_a_data_loader_may_start_its_worker_process_anew(uri: str, options: dict[str, str]) -> None:
    """As it does by default on macOS, and with Python 3.14: the dataset is pickled."""
    data = Dataset(uri, batch_size=20, **options)  # type: ignore[arg-type]
    copy = pickle.loads(pickle.dumps(data))
    loader = DataLoader(data, batch_size=None, num_workers=1, multiprocessing_context="spawn")
    assert [ids(list(loader)) for _ in range(2)] == [ids(list(copy)) for _ in range(2)]


@pytest.mark.parametrize(("options", "problem"), [({"batch_size": 10}, "batch_size=20"), ({"seed": 1}, "seed=0")])
def test_a_state_of_another_order_is_refused(uri: str, options: dict[str, int], problem: str) -> None:
    data = Dataset(uri, **{"batch_size": 20} | options)  # type: ignore[arg-type]
    with pytest.raises(TrainyardError, match=f"a Dataset with {problem} cannot be loaded"):
        data.load_state_dict(Dataset(uri, batch_size=20).state_dict())


@WORKERS
def test_a_data_loader_resumes_at_a_saved_state(uri: str, workers: int, persistent: bool) -> None:
    data = Dataset(uri, batch_size=20)
    expected = [ids(list(data)) for _ in range(3)]
    resumed = Dataset(uri, batch_size=20)
    resumed.load_state_dict({"epoch": 1, "step": 2})
    loader = build_loader(resumed, workers, persistent)
    assert [ids(list(loader)) for _ in range(2)] == [expected[1][40:], expected[2]]


def test_the_length_is_that_of_a_whole_epoch_wherever_it_resumes(uri: str) -> None:
    """Lightning, the Trainer of transformers and progress bars count the steps of an epoch by it."""
    data = Dataset(uri, batch_size=20)
    lengths = [len(data)]
    for _ in data:
        lengths.append(len(data))
    assert lengths == [6] * 7


def test_a_position_behind_the_last_batch_of_more_workers_is_the_next_epoch(uri: str) -> None:
    """The last batch has three rows: four workers leave it out."""
    data = Dataset(uri, batch_size=20, rank=3, world=4)
    data.load_state_dict({"epoch": 2, "step": 5})
    assert position(data) == (3, 0)
    assert data.epoch == 3
    assert len(list(data)) == 5


def test_the_worker_is_that_of_torchrun_by_default(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    parts = []
    for rank in range(2):
        monkeypatch.setenv("RANK", str(rank))
        parts.append(ids(list(Dataset(uri, batch_size=20))))
        assert parts[-1] == ids(list(Dataset(uri, batch_size=20, rank=rank, world=2)))
    assert sorted(parts[0] + parts[1]) == list(range(ROWS))
    assert ids(list(Dataset(uri, batch_size=20, rank=0, world=1))) == ids(list(Dataset(uri, batch_size=20, world=1)))
    data = Dataset(uri, batch_size=20)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(TrainyardError, match=r"rank 1 of 2, but this process is rank 0 of 2 by now\. Create"):
        list(data)


@pytest.mark.parametrize("persistent", [False, True])
def test_the_position_of_a_worker_process_that_reads_ahead_is_refused(uri: str, persistent: bool) -> None:
    data = Dataset(uri, batch_size=20)
    assert position(data) == (0, 0)
    loader = build_loader(data, 1, persistent)
    iteration = iter(loader)
    next(iteration)
    with pytest.raises(TrainyardError, match=r"state_dict\(\).*num_workers=1.*num_workers=0"):
        data.state_dict()
    del iteration
    second = ids(list(loader))
    fresh = Dataset(uri, batch_size=20)
    fresh.set_epoch(1)
    assert second == ids(list(fresh)), "an iteration that is left early is not resumed"
    data.set_epoch(5)
    assert position(data) == (5, 0)


def test_a_copy_of_a_dataset_has_a_position_of_its_own(uri: str) -> None:
    data = Dataset(uri, batch_size=20, columns=["id"])
    state = pickle.loads(pickle.dumps(data._position))
    other = build_loader(data, 1, False)
    first = ids(list(other))
    assert state.load() == (0, 0, 0)
    data._position = state
    assert ids(list(other)) == first
    assert ids(list(other)) != first


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
    assert ids(list(resumed)) == ids(list(iteration))
    assert ids(list(resumed)) == ids(list(data)), "the next epoch"


def test_a_state_without_batches_is_loaded(uri: str) -> None:
    """There are fewer rows than workers."""
    data = Dataset(uri, batch_size=200, rank=0, world=150)
    data.set_epoch(2)
    resumed = Dataset(uri, batch_size=200, rank=0, world=150)
    resumed.load_state_dict(data.state_dict())
    assert (len(resumed), resumed.epoch, list(resumed)) == (0, 2, [])


def test_a_loop_that_counts_batches_gets_the_whole_next_epoch(uri: str) -> None:
    data = Dataset(uri, batch_size=20)
    iteration = iter(data)
    first = [next(iteration) for _ in range(len(data))]
    assert ids(first) == ids(list(Dataset(uri, batch_size=20)))
    assert position(data) == (1, 0)
    assert sorted(ids(list(data))) == list(range(ROWS))


@WORKERS
def test_without_resume_an_iteration_starts_at_the_beginning(uri: str, workers: int, persistent: bool) -> None:
    data = Dataset(uri, batch_size=20, shuffle=False, resume=False)
    loader = build_loader(data, workers, persistent)
    iteration = iter(loader)
    next(iteration)
    del iteration
    assert ids(list(loader)) == list(range(ROWS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, r"batch_size=0 is smaller than the number of workers, 1.*Write batch_size=1 or more\."),
        ({"batch_size": 3, "world": 4}, r"batch_size=3 is smaller than .* 4.*Write batch_size=4 or more\."),
        ({"batch_size": 20, "world": 0}, r"world=0 is not a number of workers; write 1 or more\."),
        ({"batch_size": 20, "rank": 5, "world": 2}, r"rank=5 is not a worker of world=2; write 0 to 1\."),
        ({"batch_size": 20, "rank": -1}, r"rank=-1 is not a worker of world=1; write 0\."),
    ],
)
def test_an_invalid_batch_size_or_worker_is_refused(uri: str, options: dict[str, int], message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        Dataset(uri, **options)


def test_a_transform_gets_whole_batches(uri: str) -> None:
    doubled = Dataset(uri, columns=["x"], batch_size=20, transform=lambda batch: {"x": batch["x"] * 2})
    assert sum(float(batch["x"].sum()) for batch in doubled) == 2 * sum(range(2 * ROWS))


def test_several_workers_are_refused(uri: str) -> None:
    batches = iter(DataLoader(Dataset(uri, batch_size=20), batch_size=None, num_workers=2))
    with pytest.raises(TrainyardError, match="num_workers=2: each worker of the DataLoader would read every batch"):
        next(batches)
    batches._shutdown_workers()  # the garbage collector would wait for them in whatever thread it runs


@pytest.mark.parametrize(
    "options",
    [{"balance": "label"}, {"weight_by": "weight"}, {"bucket_by": "tokens"}, {"balance": "label", "world": 9}],
)
@pytest.mark.parametrize("columns", [["row"], ["label", "row", "weight", "tokens"]])
def test_batches_have_the_requested_columns_only(tmp_path: Path, columns: list[str], options: dict[str, Any]) -> None:
    """Columns that the order of rows depends on are read beside them."""
    rows = datasets.sequences(70) | {"weight": 1.0 + np.arange(70) % 3}
    uri = datasets.write(tmp_path, {"train": rows}, rows_per_batch=16)
    batches = list(Dataset(uri, columns=columns, batch_size=30, **options))
    requested = {*columns, *(["tokens_mask"] if "tokens" in columns else [])}
    assert [set(batch) for batch in batches] == [requested] * len(batches)
    every = list(Dataset(uri, batch_size=30, **options))
    assert [batch["row"].tolist() for batch in batches] == [batch["row"].tolist() for batch in every]


def test_a_version_of_a_dataset_is_read_by_its_name(uri: str) -> None:
    current = manifests.read_current(uri)
    manifests.commit(uri, current.model_copy(update={"number": 2, "splits": {"validation": current.split("train")}}))
    assert sorted(ids(list(Dataset(f"{uri}@1", batch_size=20)))) == list(range(ROWS))
    assert Portion.of(f"{uri}@1", 0.5).manifest.number == 1
    with pytest.raises(TrainyardError, match=r"has no split 'train'; it has validation"):
        Dataset(uri, batch_size=20)
    with pytest.raises(TrainyardError, match="has no version 3; it has versions 1 to 2"):
        Dataset(f"{uri}@3", batch_size=20)
