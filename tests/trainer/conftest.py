"""A dataset, and what becomes of a run on it that nothing disturbs."""

from __future__ import annotations

import pytest

from tests.trainer import datasets
from tests.trainer.runs import EVERY, losses, ordered
from trainyard.trainer.world import World


@pytest.fixture(scope="session")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("data") / "dataset"
    return datasets.write(directory, {"train": datasets.blobs(500), "validation": datasets.blobs(101, seed=1)})


@pytest.fixture(scope="session")
def undisturbed(batches: str, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    folder = tmp_path_factory.mktemp("undisturbed")
    return losses(ordered(World(), batches, str(folder), EVERY["allreduce"], None, {}))
