"""Loops of Accelerate and transformers read each row once an epoch, and resume where they were."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from tests.trainer import datasets
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.world import World

ROWS, BATCH, EPOCHS = 103, 20, 2
STEPS = 6
Seen = list[list[int]]
PROCESSES = pytest.mark.parametrize(
    "processes", [pytest.param(1, marks=pytest.mark.full), 2, pytest.param(3, marks=pytest.mark.full)]
)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    rows = {"x": np.random.default_rng(0).normal(size=(ROWS, 2)).astype(np.float32), "id": np.arange(ROWS)}
    return datasets.write(tmp_path_factory.mktemp("data") / "d", {"train": rows, "validation": rows}, rows_per_batch=16)


class Net(nn.Module):
    """A model that keeps the rows that it has been called with."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(2, 1)
        self.seen: Seen = []

    def forward(self, x: Tensor, id: Tensor) -> dict[str, Tensor]:
        """Return a loss, and the rows."""
        self.seen.append(id.tolist())
        return {"loss": self.layer(x).pow(2).mean(), "id": id}


def launch(world: World) -> None:
    """Set the variables that torchrun, or `accelerate launch`, would set."""
    if world.size > 1:
        rank, size = str(world.rank), str(world.size)
        os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}  # the process group exists


def use_accelerate(world: World, uri: str, folder: str, stop_after: int, prepared: dict[str, Any] | None) -> Any:
    """Train with Accelerate, from the saved state if there is one; return the rows of each step and the weights."""
    launch(world)
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**prepared or {}))
    model = Net()
    network, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    data: Any = Dataset(uri, columns=["x", "id"], batch_size=BATCH)
    if prepared is not None:
        for _ in accelerator.prepare(DataLoader(data, batch_size=None)):
            pass
    accelerator.register_for_checkpointing(data)
    if Path(folder).exists():
        accelerator.load_state(folder)
    steps = 0
    for _ in range(data.epoch, EPOCHS):
        for batch in data:
            optimizer.zero_grad()
            accelerator.backward(network(**batch)["loss"])
            optimizer.step()
            steps += 1
            if steps == stop_after:
                accelerator.save_state(folder)
                return model.seen, model.layer.weight.tolist()
    return model.seen, model.layer.weight.tolist()


@pytest.mark.ranks
@PROCESSES
def test_a_loop_of_accelerate_resumes_with_the_next_row(uri: str, tmp_path: Path, processes: int) -> None:
    with Workers(processes) as workers:
        undisturbed = workers(use_accelerate, uri, str(tmp_path / "none"), -1, None)
        check_epochs([seen for seen, _ in undisturbed])
        for done in (2, STEPS):
            folder = str(tmp_path / f"{done}")
            before = workers(use_accelerate, uri, folder, done, None)
            after = workers(use_accelerate, uri, folder, -1, None)
            assert [b[0] + a[0] for b, a in zip(before, after, strict=True)] == [seen for seen, _ in undisturbed]
            assert [weights for _, weights in after] == [weights for _, weights in undisturbed]


def check_epochs(by_worker: list[Seen]) -> None:
    """Check that each row was read once an epoch, in batches that do not depend on the number of workers."""
    for epoch in range(EPOCHS):
        steps = [[row for seen in by_worker for row in seen[epoch * STEPS + step]] for step in range(STEPS)]
        assert [len(step) for step in steps] == [BATCH] * 5 + [3]
        assert sorted(row for step in steps for row in step) == list(range(ROWS))


def prepare_again(world: World, uri: str, options: dict[str, Any]) -> str:
    """Return the error of a loader of a Dataset that Accelerate has prepared."""
    with pytest.raises(TrainyardError) as error:
        use_accelerate(world, uri, "none", -1, options)
    return str(error.value)


@pytest.mark.ranks
@PROCESSES
@pytest.mark.parametrize("options", [{}, {"dispatch_batches": False}])
def test_a_second_sharding_by_accelerate_is_refused(uri: str, processes: int, options: dict[str, Any]) -> None:
    with Workers(processes) as workers:
        for message in workers(prepare_again, uri, options):
            assert message.startswith("Accelerate's prepare() got a loader of a Dataset, and shards it once more")
            assert "accelerator.register_for_checkpointing(dataset)" in message


def use_trainer(world: World, uri: str, folder: str, resume: str | None, ours: bool = True) -> Any:
    """Train with a Trainer of transformers; return the rows of each step, the weights and the rows evaluated."""
    launch(world)
    import transformers

    from trainyard.trainer import TrainyardTrainer

    evaluated: list[int] = []

    def measure(predictions: Any) -> dict[str, float]:
        evaluated.extend(predictions.predictions.tolist())
        return {}

    arguments = transformers.TrainingArguments(
        folder, num_train_epochs=EPOCHS, save_steps=1, report_to=[], use_cpu=True, disable_tqdm=True,
        gradient_accumulation_steps=4, learning_rate=0.1, logging_strategy="no", label_names=["id"], seed=1,
    )  # fmt: skip
    whole = Dataset(uri, "validation", ["x", "id"], batch_size=7, shuffle=False, resume=False, rank=0, world=1)
    model = Net()
    trainer = (TrainyardTrainer if ours else transformers.Trainer)(
        model, arguments, train_dataset=Dataset(uri, columns=["x", "id"], batch_size=BATCH), eval_dataset=whole,
        compute_metrics=measure,
    )  # fmt: skip
    trainer.train(resume_from_checkpoint=resume)
    seen = list(model.seen)
    trainer.evaluate()
    return seen, model.layer.weight.tolist(), sorted(evaluated)


@pytest.mark.ranks
@PROCESSES
def test_a_trainer_of_transformers_resumes_with_the_next_row(uri: str, tmp_path: Path, processes: int) -> None:
    """An epoch has updates of four and of two batches, so that a run has saved after each of four updates."""
    with Workers(processes) as workers:
        undisturbed = workers(use_trainer, uri, str(tmp_path), None)
        check_epochs([seen for seen, _, _ in undisturbed])
        assert all(evaluated == list(range(ROWS)) for _, _, evaluated in undisturbed)
        for updates, batches in ((1, 4), (2, 6), (3, 10)):
            resumed = workers(use_trainer, uri, str(tmp_path), str(tmp_path / f"checkpoint-{updates}"))
            assert [seen for seen, _, _ in resumed] == [seen[batches:] for seen, _, _ in undisturbed]
            assert [weights for _, weights, _ in resumed] == [weights for _, weights, _ in undisturbed]


def train_with_theirs(world: World, uri: str, folder: str) -> str:
    """Return the error of the Trainer of transformers itself."""
    with pytest.raises(TrainyardError) as error:
        use_trainer(world, uri, folder, None, ours=False)
    return str(error.value)


@pytest.mark.ranks
@PROCESSES
def test_a_trainer_that_shards_a_dataset_again_is_refused(uri: str, tmp_path: Path, processes: int) -> None:
    with Workers(processes) as workers:
        for message in workers(train_with_theirs, uri, str(tmp_path)):
            assert "Write trainyard.trainer.TrainyardTrainer instead of Trainer" in message
