"""Metrics of the validation split are computed in float32, whatever the precision of the network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics import Metric, SpearmanCorrCoef
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC

from tests.trainer import datasets
from tests.trainer.recipes import linear
from tests.trainer.workers import Workers
from trainyard.trainer.loop import metric_lists
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.model.recipe import Batch, Recipe
from trainyard.trainer.world import World


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Workers]:
    with Workers(2) as workers:
        yield workers


class Recorder(Metric):
    """A metric that records the type of the output that it gets, and of a product that it computes."""

    outputs: ClassVar[set[torch.dtype]] = set()
    products: ClassVar[set[torch.dtype]] = set()

    def update(self, output: Any, label: Tensor) -> None:
        tensor = output if isinstance(output, Tensor) else output[0]
        self.outputs.add(tensor.dtype)
        self.products.add((tensor @ tensor.T).dtype)

    def compute(self) -> Tensor:
        return torch.zeros(())


class Heads(nn.Linear):
    """A layer whose output is a tensor, or a tuple or a dict of one."""

    def __init__(self, kind: str) -> None:
        super().__init__(8, 3)
        self.kind = kind

    def forward(self, x: Tensor) -> Any:
        output = super().forward(x)
        return {"tensor": output, "tuple": (output,), "dict": {0: output}}[self.kind]


def with_heads(kind: str) -> Recipe:
    return replace(
        linear(), model=Heads(kind), metrics={"recorded": Recorder()},
        loss=lambda output, label: cross_entropy(output if kind == "tensor" else output[0], label),
    )  # fmt: skip


def with_changing_step() -> Recipe:
    def step(model: nn.Module, columns: Batch) -> Tensor:
        columns["x"].mul_(-1)
        columns["label"].add_(1).remainder_(3)
        return cross_entropy(model(columns), columns["label"])

    metrics = {"accuracy": MulticlassAccuracy(3, average="micro")}
    return replace(linear(), model=nn.Linear(8, 3), step=step, metrics=metrics)


def test_metrics_get_the_rows_as_they_are_although_the_step_changes_its_batch(tmp_path: Path) -> None:
    validation = datasets.blobs(20)
    uri = datasets.write(tmp_path / "dataset", {"train": datasets.blobs(50), "validation": validation})
    model = str(tmp_path / "model")
    fitted = fit(f"{__name__}:with_changing_step", dataset=uri, model=model, epochs=1, batch_size=50)
    right = load_model(model).output(validation).argmax(1).cpu().numpy() == validation["label"]
    assert fitted.metrics["accuracy"] == pytest.approx(right.mean())


def record(folder: Path, kind: str) -> None:
    """Record the types of a training in bfloat16."""
    Recorder.outputs.clear()
    Recorder.products.clear()
    uri = datasets.write(folder / "dataset", {"train": datasets.blobs(50), "validation": datasets.blobs(20)})
    fit(
        f"{__name__}:with_heads", dataset=uri, model=str(folder / "model"), epochs=1, batch_size=50,
        precision="bfloat16", recipe_params={"kind": kind},
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["tensor", "tuple", "dict"])
def test_metrics_get_outputs_in_half_precision_as_float32(tmp_path: Path, kind: str) -> None:
    record(tmp_path, kind)
    assert Recorder.outputs == {torch.float32}


def test_metrics_are_computed_without_autocast(tmp_path: Path) -> None:
    record(tmp_path, "tensor")
    assert Recorder.products == {torch.float32}


class Own(Metric):
    """A metric whose states are lists with an item for each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.add_state("rows", [], dist_reduce_fx=None)
        self.add_state("sums", [], dist_reduce_fx=lambda items: torch.stack(list(items)))

    def update(self, output: Tensor, label: Tensor) -> None:
        self.rows.append(output)
        self.sums.append(label.sum())

    def compute(self) -> Tensor:
        sums = torch.stack(self.sums) if isinstance(self.sums, list) else self.sums
        return torch.cat(self.rows).sum() + sums.sum() * 1000


def compute_metrics(world: World, batches: list[list[int]]) -> list[float]:
    """Return the values of metrics that each worker updates with its batches, each a number of rows."""
    rows = torch.arange(12.0).reshape(6, 2).remainder(5) / 5
    metrics = [Own(), MulticlassAUROC(2), SpearmanCorrCoef(), Own() + MulticlassAUROC(2)]
    end = 0
    for rank, of_rank in enumerate(batches):
        for count in of_rank:
            begin, end = end, end + count
            for metric in metrics if rank == world.rank or world.size == 1 else ():
                output = rows[begin:end, 0] if isinstance(metric, SpearmanCorrCoef) else rows[begin:end]
                label = torch.arange(begin, end) % 2
                metric.update(output, label.float() if isinstance(metric, SpearmanCorrCoef) else label)
    return [float(metric_lists.compute(metric, world)) for metric in metrics]


@pytest.mark.ranks
@pytest.mark.parametrize("batches", [[[2, 1], [3]], [[6], []], [[3], [3]]])
def test_lists_of_metrics_are_gathered_although_workers_had_other_numbers_of_batches(
    two_workers: Workers, batches: list[list[int]]
) -> None:
    alone = compute_metrics(World(), batches)
    assert two_workers(compute_metrics, batches) == [pytest.approx(alone)] * 2
