"""Recipes with several heads, and a dataset with a class and a number, of which some rows lack one or both."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import MeanAbsoluteError
from torchmetrics.classification import MulticlassAccuracy

from tests.trainer import datasets
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.recipe import Recipe


def rows(count: int, seed: int = 0, missing: bool = False) -> datasets.Columns:
    """Return blobs with their class as `kind`, and a number as `size`; half of each is null if labels are missing."""
    columns = datasets.blobs(count, seed)
    x, label = np.asarray(columns["x"]), np.asarray(columns["label"])
    size = (x[:, 0] - x[:, 1]).astype(np.float32)
    if not missing:
        return {"x": x, "kind": label, "size": size}
    rng = np.random.default_rng(seed)
    without_kind, without_size = rng.random(count) < 0.5, rng.random(count) < 0.5
    return {"x": x, "kind": np.ma.masked_array(label, without_kind), "size": np.ma.masked_array(size, without_size)}


def write(directory: Path, missing: bool = False, count: int = 100) -> str:
    """Write a dataset of `rows`, and return its URI."""
    splits = {"train": rows(count, 0, missing), "validation": rows(60, 1, missing), "test": rows(50, 2, missing)}
    return datasets.write(directory / "dataset", splits, rows_per_batch=16)


class Pair(NamedTuple):
    """The outputs of a model, as attributes."""

    size: Tensor
    kind: Tensor


class Two(nn.Module):
    """A layer for each head, whose outputs are returned together."""

    def __init__(self, returns: str) -> None:
        super().__init__()
        self.kind, self.size, self.returns = nn.Linear(8, 3), nn.Sequential(nn.Linear(8, 1), nn.Flatten(0)), returns

    def forward(self, x: Tensor) -> Any:
        return RETURNS[self.returns](self.kind(x), self.size(x))


RETURNS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "dict": lambda kind, size: {"size": size, "other": size, "kind": kind},
    "tuple": lambda kind, size: (kind, size),
    "named tuple": lambda kind, size: Pair(size=size, kind=kind),
    "object": lambda kind, size: SimpleNamespace(kind=kind, size=size),
    "kind alone": lambda kind, size: {"kind": kind},
    "three": lambda kind, size: (kind, size, size),
    "a column": lambda kind, size: (kind, size[:, None]),
    "two classes": lambda kind, size: (kind[:, :2], size),
}


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.02)


def two(returns: str = "dict", weight: float = 0.25) -> Recipe:
    return Recipe(
        model=Two(returns),
        features="x",
        heads={
            "kind": Head(classes=3, metrics=["accuracy", "f1"], predict=lambda output: {"class": output.argmax(1)}),
            "size": Head(loss=nn.MSELoss(), metrics=["rmse"], weight=weight),
        },
        optimizer=sgd,
    )


def of_one_label() -> Recipe:
    """Return the recipe of the head `kind` alone."""
    model = nn.Linear(8, 3)
    return Recipe(model=model, features="x", label="kind", classes=3, metrics=["accuracy"], optimizer=sgd)


class Named(nn.Linear):
    """A layer whose output is a dict."""

    def forward(self, x: Tensor) -> Any:
        return {"kind": super().forward(x)}


def of_one_head() -> Recipe:
    """Return the same by `heads`."""
    heads = {"kind": Head(classes=3, metrics=["accuracy"])}
    return Recipe(model=Named(8, 3), features="x", heads=heads, optimizer=sgd)


class Terminated(Two):
    """Send SIGTERM to the process at one step of a training."""

    step: ClassVar[int] = 0

    def forward(self, x: Tensor) -> Any:
        if self.training:
            Terminated.step -= 1
            if Terminated.step == 0:
                os.kill(os.getpid(), signal.SIGTERM)
        return super().forward(x)


def terminated() -> Recipe:
    return replace(two(), model=Terminated("dict"))


def with_tags() -> Recipe:
    """Return a recipe whose second head has three labels at once, each 0 or 1."""

    class Tagged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kind, self.tags = nn.Linear(8, 3), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Any:
            return self.kind(x), self.tags(x)

    heads = {"kind": Head(classes=3), "tags": Head(loss=nn.BCEWithLogitsLoss())}
    return Recipe(model=Tagged(), features="x", heads=heads, optimizer=sgd)


def sharing_metrics() -> Recipe:
    """Return two heads of numbers that are given the same metrics."""
    metrics = {"mae": MeanAbsoluteError()}
    heads = {
        "size": Head(loss=nn.MSELoss(), metrics=metrics),
        "kind": Head(loss=nn.CrossEntropyLoss(), metrics={"top": MulticlassAccuracy(3, average="micro")}),
        "other": Head(label="size", loss=nn.L1Loss(), metrics=metrics),
    }
    model = Two("dict")
    return Recipe(model=Opposed(model), features="x", heads=heads, optimizer=sgd)


class Opposed(nn.Module):
    """A model whose output `other` is the negative of `size`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        output = self.model(x)
        return {**output, "other": -output["size"]}


def ignoring_a_class() -> Recipe:
    """Return a recipe whose loss ignores the class 0, and whose own metric counts all rows."""
    return Recipe(
        model=nn.Linear(8, 3), features="x", label="kind", loss=nn.CrossEntropyLoss(ignore_index=0), optimizer=sgd,
        metrics={"accuracy": MulticlassAccuracy(3, average="micro")},
    )  # fmt: skip


class OtherInTraining(nn.Linear):
    """A layer that returns another shape where it is not trained."""

    def forward(self, x: Tensor) -> Tensor:
        output = super().forward(x)
        return output[:, 0] if self.training else output


def other_in_training() -> Recipe:
    return Recipe(model=OtherInTraining(8, 2), features="x", label="size", loss=nn.MSELoss(), optimizer=sgd)
