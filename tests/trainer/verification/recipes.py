"""Recipes whose forward pass uses more than the state of the model, and recipes that only seem to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainyard.trainer.model.recipe import Recipe

PROJECTION = torch.randn(8, 8)


class InAttribute(nn.Module):
    """Project rows with random numbers that are an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = torch.randn(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.projection


class InBuffer(nn.Module):
    """Project rows with random numbers that are a buffer, which is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("projection", torch.randn(8, 8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.projection


class Global(nn.Module):
    """Project rows with random numbers that belong to the Python module."""

    def forward(self, x: Tensor) -> Tensor:
        return x @ PROJECTION


class Annealed(nn.Module):
    """Scale rows by a number that each step of the training changes."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = 1.0

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.temperature *= 0.9
        return x / self.temperature


class Centered(nn.Module):
    """Subtract the mean of the first batch, a buffer that exists from then on."""

    def __init__(self, only_while_training: bool = False) -> None:
        super().__init__()
        self._only_while_training = only_while_training

    def forward(self, x: Tensor) -> Tensor:
        if not hasattr(self, "center") and (self.training or not self._only_while_training):
            self.register_buffer("center", x.mean(0))
        return x - getattr(self, "center", 0)


class Constant(nn.Module):
    """Project rows with numbers that are random, and the same in each process."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = torch.randn(8, 8, generator=torch.Generator().manual_seed(7))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.projection


class Noisy(nn.Module):
    """Add random numbers to rows, also in evaluation mode."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn_like(x)


class NoisyByItself(nn.Module):
    """Add numbers of an own generator to rows, also in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self._generator = torch.Generator().manual_seed(7)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.randn(x.shape, generator=self._generator)


class InTrainingOnly(nn.Module):
    """Raise in evaluation mode."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            raise RuntimeError("this model has no prediction")
        return x


class Counting(nn.Module):
    """Count its passes in an attribute that the output does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        return x


class Saliency(nn.Module):
    """Multiply rows by the gradient of a score, as models of forces do."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            score = self.score(x).square().sum()
            return x * torch.autograd.grad(score, x, create_graph=True)[0]


class OtherwiseExported(nn.Module):
    """Compute something else while the model is exported."""

    def forward(self, x: Tensor) -> Tensor:
        return -x if torch.compiler.is_exporting() else x


COMPILED: list[Any] = []
"""The graphs that were compiled."""


def note_graph(graph: Any, _: Any) -> Any:
    COMPILED.append(graph)
    return graph.forward


KINDS: dict[str, Callable[[], nn.Module]] = {
    "attribute": InAttribute,
    "buffer": InBuffer,
    "module": Global,
    "annealed": Annealed,
    "centered": Centered,
    "centered while training": lambda: Centered(only_while_training=True),
    "constant": Constant,
    "noisy": Noisy,
    "noisy by itself": NoisyByItself,
    "in training only": InTrainingOnly,
    "counting": Counting,
    "saliency": Saliency,
    "compiled": lambda: torch.compile(nn.Linear(8, 8), backend=note_graph),  # type: ignore[dict-item]
    "exported": OtherwiseExported,
    "dropout": lambda: nn.Sequential(nn.BatchNorm1d(8), nn.Dropout()),
}


def first_layer(kind: str) -> Recipe:
    model = nn.Sequential(KINDS[kind](), nn.Linear(8, 3))
    return Recipe(
        model=model, features="x", label="label", loss=nn.CrossEntropyLoss(),
        step=of_training if kind == "in training only" else None,
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1),
    )  # fmt: skip


def of_training(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    output = model(batch) if model.training else torch.zeros(len(batch["label"]), 3)
    return nn.functional.cross_entropy(output, batch["label"])


class TiedByMemory(nn.Module):
    """An autoencoder, of which both weights are one memory."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder, self.head = nn.Linear(8, 4), nn.Linear(4, 8), nn.Linear(8, 3)
        self.decoder.weight = nn.Parameter(self.encoder.weight.t())

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.decoder(self.encoder(x)).relu())


class Interleaved(nn.Module):
    """Three layers whose weights are every third row of one memory."""

    def __init__(self) -> None:
        super().__init__()
        fused = torch.randn(24, 8) / 8
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        for number, layer in enumerate(self.layers):
            layer.weight = nn.Parameter(fused[number::3])
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        first, second, third = (layer(x) for layer in self.layers)
        return self.head(first * second.sigmoid() + third)


def views(kind: str) -> Recipe:
    model = TiedByMemory() if kind == "tied" else Interleaved()
    return Recipe(
        model=model, features="x", label="label", loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.Adam(parameters, 0.01),
    )  # fmt: skip


class Bag(nn.Module):
    """A sparse table of the signs of a row's numbers, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(16, 3, mode="sum", sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.table((x > 0).long() + 2 * torch.arange(8))


class Secretive(torch.optim.SGD):
    """An optimizer whose state has an object that only unpickling could restore."""

    def step(self, closure: Any = None) -> Any:
        result = super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["memory"] = Path.cwd()
        return result


def optimizers(kind: str) -> Recipe:
    model = Bag() if kind == "sparse" else nn.Linear(8, 3)
    kinds: dict[str, Any] = {"sparse": torch.optim.SparseAdam, "secretive": Secretive}
    return Recipe(
        model=model, features="x", label="label", loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: kinds[kind](parameters, 0.05),
    )  # fmt: skip
