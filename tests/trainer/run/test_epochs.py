"""The epochs of a loop: which one is the best, what each of them measures, and what an option needs of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn import functional

from tests.trainer import datasets, recipes
from trainyard.errors import TrainyardError
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer import Run
from trainyard.trainer.checkpointing.checkpoints import Position
from trainyard.trainer.data.order import Order
from trainyard.trainer.loop.fit import FitResult, fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.run.batch import Batch
from trainyard.trainer.run.epochs import Epochs
from trainyard.trainer.world import World


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    return datasets.write(tmp_path_factory.mktemp("data") / "dataset", {"train": datasets.blobs(120)})


class Loop:
    """Train five steps an epoch, and report values; keep the weights of each epoch.

    Args:
        values: For each epoch the values to report at its end, by name.
        leave: The epoch and the step after which the loop is left.
        factor: The loss is multiplied by it.
        tracked: How the model is tracked.
    """

    def __init__(
        self,
        *values: dict[str, float],
        leave: tuple[int, int] | None = None,
        factor: float = 1.0,
        tracked: str = "itself",
    ) -> None:
        self.values, self.leave, self.factor, self.tracked = values, leave, factor, tracked
        self.weights: list[torch.Tensor] = []

    def __call__(self, run: Run) -> None:
        net = run.model(recipes.linear)
        optimizer = optim.SGD(net.parameters(), 0.1)
        networks = {"itself": {"net": net}, "part": {"both": nn.ModuleDict({"net": net})}, "not": {}}
        if self.tracked == "not":
            net.requires_grad_(False)
        run.track(**networks[self.tracked], optimizer=optimizer)
        for batch in run.steps():
            optimizer.zero_grad()
            batch.backward(functional.cross_entropy(net(batch), batch["label"]) * self.factor)
            optimizer.step()
            self.end_step(run, batch)
            if batch.ends_epoch:
                self.weights.append(net.model.weight.detach().clone())
            if (batch.epoch, batch.step) == self.leave:
                break
        run.publish(net)

    def end_step(self, run: Run, batch: Batch) -> None:
        if batch.ends_epoch:
            run.report(**self.values[batch.epoch])


def train(batches: str, folder: Path, loop: Loop, **options: Any) -> FitResult:
    options = {"epochs": max(len(loop.values), 1), "batch_size": 24} | options
    return fit(loop=loop, dataset=batches, model=str(folder / "model"), **options)


SPARSE = ({"validation_loss": 1.0}, {}, {"validation_loss": 5.0}, {}, {"validation_loss": 9.0})


@pytest.mark.parametrize("options", [{}, {"monitor": "validation_loss"}])
def test_the_best_epoch_is_one_of_those_that_have_the_monitored_metric(
    batches: str, tmp_path: Path, options: dict[str, str]
) -> None:
    loop = Loop(*SPARSE)
    fitted = train(batches, tmp_path, loop, **options)
    assert fitted.history.best == 0
    assert load_model(str(tmp_path / "model")).recipe.model.weight.equal(loop.weights[0])


def test_an_epoch_before_the_first_validation_is_not_the_best(batches: str, tmp_path: Path) -> None:
    values = ({"loss": 0.1}, {"loss": 0.5, "validation_loss": 2.0}, {"loss": 0.3, "validation_loss": 3.0})
    assert train(batches, tmp_path, Loop(*values)).history.best == 1


@pytest.mark.parametrize("monitor", ["accuracy", "loss"])
def test_an_epoch_that_was_left_early_is_not_the_best(batches: str, tmp_path: Path, monitor: str) -> None:
    values = [{"accuracy": value, "validation_loss": 1 - value} for value in (0.5, 0.9, 0.7, 1.0)]
    options = {"monitor_mode": "max"} if monitor == "accuracy" else {}
    fitted = train(batches, tmp_path, Loop(*values, leave=(3, 2)), monitor=monitor, **options)
    assert len(fitted.history.epochs) == 4
    assert fitted.history.best == 1
    assert fitted.history.stopped_early


def test_an_epoch_that_was_left_early_is_the_best_if_it_is_the_only_one(batches: str, tmp_path: Path) -> None:
    loop = Loop({}, leave=(0, 2))
    fitted = train(batches, tmp_path, loop, epochs=2, monitor="accuracy", monitor_mode="max")
    assert (len(fitted.history.epochs), fitted.history.best) == (1, 0)


def test_the_speed_of_an_epoch_counts_the_rows_that_were_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch resumes after its first step, and is left after its third one."""
    monkeypatch.setattr(time, "perf_counter", iter([0.0, 10.0, 12.0]).__next__)
    epochs = Epochs(TrainOptions(), World())
    epochs.begin(1, 0)
    epochs.end(Order(blocks=(120,), batch=24, seed=0, window=1), Position(updates=3, epoch=0, step=3), 0)
    assert epochs.history.epochs[0]["rows_per_second"] == 2 * 24 / 2.0


def test_weights_that_diverged_end_the_training_also_without_checkpoints(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match="epoch 1"):
        train(batches, tmp_path, Loop({}, factor=float("nan")))


def test_early_stopping_needs_a_monitored_metric(batches: str, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"early_stopping=2, but the loop reported neither loss nor .*distance"):
        train(batches, tmp_path, Loop({"distance": 1.0}), early_stopping=2)


@pytest.mark.parametrize("tracked", ["part", "not"])
def test_a_model_that_is_not_tracked_by_itself_is_refused(batches: str, tmp_path: Path, tracked: str) -> None:
    with pytest.raises(TrainyardError, match=r"run\.model\('tests\.trainer\.recipes:linear'\) is not tracked"):
        train(batches, tmp_path, Loop({}, tracked=tracked))
