"""A dataset, and the losses of an uninterrupted run on it."""

from __future__ import annotations

import pytest

from tests.trainer import datasets
from tests.trainer.runs import STRATEGIES, get_losses, train_with_fault
from trainyard.trainer.world import World


@pytest.fixture(scope="session")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("data") / "dataset"
    return datasets.write(directory, {"train": datasets.blobs(500), "validation": datasets.blobs(101, seed=1)})


@pytest.fixture(scope="session")
def uninterrupted(batches: str, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    return get_losses(train_with_fault(World(), batches, str(folder), STRATEGIES["allreduce"], None, {}))
