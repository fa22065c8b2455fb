"""Recipes for the trainer's tests."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy

from trainyard.trainer.data.reading.images import CenterCrop, RandomResizedCrop, decode_gray
from trainyard.trainer.data.reading.jagged import Sequences
from trainyard.trainer.model.recipe import Recipe


def linear(
    classes: int = 3, learning_rate: float = 0.1, limit: int | None = None, size: int = 8, label: str = "label"
) -> Recipe:
    return Recipe(
        model=nn.Linear(size, classes),
        features="x",
        label=label,
        classes=limit,
        normalize="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, learning_rate, momentum=0.9),
        metrics={"accuracy": MulticlassAccuracy(classes, average="micro")},
        predict=lambda output: {"class_": output.argmax(1)},
    )


def naming() -> Recipe:
    return replace(linear(limit=3), loss=None, metrics=["accuracy", "f1"])


def ignoring() -> Recipe:
    return replace(linear(limit=3), loss=nn.CrossEntropyLoss(ignore_index=-100))


class Tied(nn.Module):
    """Two layers with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.second(self.first(x).relu()).relu())


def tied() -> Recipe:
    return Recipe(model=Tied(), features="x", label="label", loss=nn.CrossEntropyLoss())


def of_last_layer(freeze: tuple[str, ...] = ()) -> Recipe:
    """Return a recipe whose optimizer has the parameters of the last layer only."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
    return Recipe(
        model=model, features="x", label="label", loss=nn.CrossEntropyLoss(), freeze=freeze,
        optimizer=lambda _: torch.optim.AdamW(model[2].parameters(), 0.1),
    )  # fmt: skip


def diverging() -> Recipe:
    return Recipe(
        model=nn.Linear(8, 1),
        features="x",
        label="label",
        loss=lambda output, label: ((output.squeeze(1) - label) ** 2).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 1e6),
    )


def not_differentiable() -> Recipe:
    """A recipe whose loss is 0, and whose gradient is NaN."""
    return Recipe(
        model=nn.Linear(8, 1), features="x", label="label", loss=lambda output, label: (0 * output).sqrt().mean()
    )


class Crashing(nn.Linear):
    """Raise an exception, or kill the process, on one worker."""

    def __init__(self, rank: int, how: str) -> None:
        super().__init__(8, 3)
        self._rank, self._how = rank, how

    def forward(self, x: Tensor) -> Tensor:
        if torch.distributed.get_rank() == self._rank:
            if self._how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise RuntimeError("the model failed")
        return super().forward(x)


def crashing(rank: int, how: str) -> Recipe:
    return Recipe(model=Crashing(rank, how), features="x", label="label", loss=nn.CrossEntropyLoss())


class UndefinedAtFirst(Metric):
    """NaN for the first epochs, and the number of the epoch from then on."""

    higher_is_better = False

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self._epochs, self._epoch = epochs, 0

    def update(self, output: Tensor, label: Tensor) -> None:
        pass

    def compute(self) -> float:
        self._epoch += 1
        return float("nan") if self._epoch <= self._epochs else float(self._epoch)


class OfOneWorker(UndefinedAtFirst):
    """The number of the epoch on rank 0, and its negative on others."""

    def compute(self) -> float:
        return super().compute() * (-1 if torch.distributed.get_rank() else 1)


def of_one_worker() -> Recipe:
    return replace(linear(), metrics={"metric": OfOneWorker(0)})


def undefined_at_first(epochs: int) -> Recipe:
    return replace(linear(), metrics={"metric": UndefinedAtFirst(epochs)})


class SlowValidation(nn.Linear):
    """Take a second for each batch of validation on rank 0."""

    def forward(self, x: Tensor) -> Tensor:
        if not self.training and torch.distributed.get_rank() == 0:
            time.sleep(1)
        return super().forward(x)


def slow_validation() -> Recipe:
    return Recipe(model=SlowValidation(8, 3), features="x", label="label", loss=nn.CrossEntropyLoss())


def weighted_step() -> Recipe:
    def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch), batch["label"], label_smoothing=0.1)

    return Recipe(model=nn.Linear(8, 3), features="x", label="label", step=step)


def observing(file: str) -> Recipe:
    """Record the labels of each step."""

    def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        with Path(file).open("a") as records:
            records.write("".join(f"{label}\n" for label in batch["label"].tolist()))
        return nn.functional.cross_entropy(model(batch), batch["label"])

    return Recipe(model=nn.Linear(8, 3), features="x", label="label", step=step)


class Modes(nn.Linear):
    """Record for each forward pass whether it is one of training, and whether it has gradients."""

    passes: ClassVar[list[tuple[bool, bool]]] = []

    def forward(self, x: Tensor) -> Tensor:
        self.passes.append((self.training, torch.is_grad_enabled()))
        return super().forward(x)


def modes() -> Recipe:
    return Recipe(model=Modes(8, 3), features="x", label="label", loss=nn.CrossEntropyLoss())


def recording(file: str, dataset: str) -> Recipe:
    """Record the number of rows of each step, and the leased versions of the dataset meanwhile."""

    def step(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        leases = [lease.name.split("-")[0] for lease in Path(dataset, "leases").iterdir()]
        with Path(file).open("a") as records:
            records.write(f"{len(batch['label'])} {leases}\n")
        return nn.functional.cross_entropy(model(batch), batch["label"])

    return Recipe(model=nn.Linear(2, 3), features="x", label="label", step=step)


def wrong_recipe() -> Recipe:
    return 1  # type: ignore[return-value]


class Number(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).squeeze(1)


def regression() -> Recipe:
    return Recipe(
        model=Number(8, 1),
        features="x",
        label="label",
        normalize="element",
        loss=lambda output, label: ((output - label) ** 2).mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.02),
    )


def plain() -> Recipe:
    """Return a recipe without momentum."""
    return Recipe(
        model=nn.Linear(8, 3),
        features="x",
        label="label",
        normalize="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1),
    )


def wide(learning_rate: float = 0.05) -> Recipe:
    return Recipe(
        model=nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 3)),
        features="x",
        label="label",
        normalize="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, learning_rate, momentum=0.9),
        metrics={"accuracy": MulticlassAccuracy(3, average="micro")},
    )


class Faulty(nn.Linear):
    """Kill or stop the process, raise or hang in the forward pass that the file `fault` names ("rank pass how").

    Kill, stop or hang once, or after each start ("kill always"). Each process that trains adds a line to the file
    `pids` beside it.
    """

    def __init__(self, fault: str) -> None:
        super().__init__(8, 3)
        file = Path(fault)
        self._fault = file.read_text().split() if file.exists() else None
        self._file, self._passes = file, 0
        self._dropout = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        self._passes += self.training
        if self.training and self._passes == 1:
            with self._file.with_name("pids").open("a") as pids:
                pids.write(f"{os.getpid()}\n")
        if self._fault:
            rank, last, how = int(self._fault[0]), int(self._fault[1]), self._fault[2]
            own_rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
            if self._passes == last and own_rank == rank:
                if how != "raise" and "always" not in self._fault:
                    self._file.unlink()
                if how == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                if how == "stop":
                    os.kill(os.getpid(), signal.SIGSTOP)
                if how == "hang":
                    threading.Event().wait()
                raise RuntimeError("the model failed")
        return super().forward(self._dropout(x))


def faulty(fault: str, dropout: float = 0.0) -> Recipe:
    model = Faulty(fault)
    model._dropout.p = dropout
    return Recipe(
        model=model,
        features="x",
        label="label",
        normalize="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, 0.05),
        schedule=lambda optimizer, updates: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, updates),
        metrics={"accuracy": MulticlassAccuracy(3, average="micro")},
    )


class UnsafeState(torch.optim.lr_scheduler.ConstantLR):
    """A schedule whose state contains code, which unpickling would run."""

    def state_dict(self) -> dict[str, Any]:
        return {"hook": os.getcwd}


def unsafe_schedule() -> Recipe:
    return Recipe(
        model=nn.Linear(8, 3),
        features="x",
        label="label",
        loss=nn.CrossEntropyLoss(),
        schedule=lambda optimizer, updates: UnsafeState(optimizer),
    )


class Mixed(nn.Module):
    """A model of three columns: an image, an integer that is embedded, and a flag."""

    def __init__(self) -> None:
        super().__init__()
        self.city = nn.Embedding(5, 3)
        self.head = nn.Linear(2 * 4 + 3 + 1, 2)

    def forward(self, image: Tensor, city: Tensor, flag: Tensor) -> Tensor:
        return self.head(torch.cat([image.flatten(1), self.city(city), flag[:, None]], dim=1))


def mixed() -> Recipe:
    return Recipe(
        model=Mixed(),
        features=["image", "city", "flag"],
        label="label",
        normalize="channel",
        loss=nn.CrossEntropyLoss(),
        predict=lambda output: {"chances": output.softmax(1), "best": output.argmax(1)},
    )


def untraceable() -> Recipe:
    """Return a recipe whose prediction branches on values."""

    def predict(output: Tensor) -> dict[str, Tensor]:
        return {"sign": output if output.sum() > 0 else -output}

    return Recipe(model=nn.Linear(8, 3), features="x", label="label", loss=nn.CrossEntropyLoss(), predict=predict)


class Pooled(nn.Module):
    """The mean over a row's tokens and frames, which padding would change if it were not masked."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 4), nn.Linear(8, 3)

    def forward(self, tokens: Tensor, own: Tensor, frames: Tensor, same: Tensor) -> Tensor:
        assert (own == same).all() and (frames[~own] == 0).all()
        together = torch.cat([self.embed(tokens), frames], 2) * own[:, :, None]
        return self.head(together.sum(1) / own.sum(1, keepdim=True))  # type: ignore[no-any-return]


class PooledNested(Pooled):
    def forward(self, tokens: Tensor, frames: Tensor) -> Tensor:  # type: ignore[override]
        starts = tokens.offsets()[:-1]
        words = nn.functional.embedding_bag(tokens.values(), self.embed.weight, starts, mode="mean")
        return self.head(torch.cat([words, torch.segment_reduce(frames.values(), "mean", offsets=frames.offsets())], 1))  # type: ignore[no-any-return]


def shift(image: Any, random: np.random.Generator) -> Any:
    return np.roll(image, random.integers(0, 2), axis=2)


def files(classes: int = 10, augment: bool = False) -> Recipe:
    """Return a recipe for image files of 8 x 8."""
    return Recipe(
        model=nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, classes)),
        features="image",
        label="label",
        classes=classes,
        decode={"image": decode_gray},
        augment={"image": shift} if augment else {},
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.Adam(parameters, 0.01),
        metrics={"accuracy": MulticlassAccuracy(classes, average="micro")},
        predict=lambda output: {"class_": output.argmax(1)},
    )


def crops(size: int = 24, augmented: int = 24) -> Recipe:
    """Return a recipe for photos, of which a part of another size may be trained on."""
    return Recipe(
        model=nn.Sequential(Scale(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)),
        features="image",
        label="label",
        classes=2,
        decode={"image": CenterCrop(size)},
        augment={"image": RandomResizedCrop(augmented)},
        learning_rate=0.1,
    )


class Scale(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        return image / 128 - 1


def pooled(sequences: Sequences = "padded", label: str = "label") -> Recipe:
    return Recipe(
        model=Pooled() if sequences == "padded" else PooledNested(),
        features=("tokens", "frames"),
        label=label,
        classes=3,
        sequences=sequences,
        normalize="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.Adam(parameters, 0.05),
        metrics={"accuracy": MulticlassAccuracy(3, average="micro")},
        predict=lambda output: {"class_": output.argmax(1)},
    )


class Terminated(nn.Module):
    """A model whose process receives SIGTERM in a training step, counted from 1."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._steps_left = step
        self.linear = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self._steps_left -= 1
            if self._steps_left == 0:
                os.kill(os.getpid(), signal.SIGTERM)
        return self.linear(x)


def terminated(step: int) -> Recipe:
    return Recipe(model=Terminated(step), features="x", label="label", loss=nn.CrossEntropyLoss())


class Exiting(nn.Linear):
    """A model that ends its process, as scripts do for wrong arguments."""

    def __init__(self) -> None:
        super().__init__(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        raise SystemExit(3)


def exiting() -> Recipe:
    return Recipe(model=Exiting(), features="x", label="label", loss=nn.CrossEntropyLoss())


class TiedBlocks(nn.Module):
    """Blocks of which the first shares its weight with the output layer, which is in none."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.output = nn.Linear(8, 8)
        self.output.weight = self.blocks[0].weight

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = torch.tanh(block(x))
        return self.output(x)


def tied_blocks() -> Recipe:
    return Recipe(model=TiedBlocks(), features="x", label="label", loss=nn.CrossEntropyLoss())


class UsedLater(nn.Module):
    """A model whose second layer is used from a training step on, and whose third layer never is."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(8, 3), nn.Linear(8, 3), nn.Linear(8, 3)
        self._step = step
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.steps += self.training
        output = self.first(x)
        return output if self.steps < self._step else output + self.second(x)


def used_later(step: int) -> Recipe:
    return Recipe(
        model=UsedLater(step),
        features="x",
        label="label",
        normalize="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, 0.05),
    )


class Routed(nn.Module):
    """A model whose second layer computes some rows only, and is not called for the others."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.some = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        routed = x[:, :1].remainder(1) < 0.03
        output = self.all(x)
        return output + routed * self.some(x) if routed.any() else output


def routed() -> Recipe:
    return Recipe(
        model=Routed(),
        features="x",
        label="label",
        normalize="element",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.AdamW(parameters, 0.05),
    )


class Tokens(nn.Module):
    """A model of integers, which it makes of numbers, with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.EmbeddingBag(10, 4, sparse=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x.long() % 10))


def tokens() -> Recipe:
    return Recipe(
        model=Tokens(),
        features="x",
        label="label",
        loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.1),
    )


class Unequal(nn.Linear):
    """Change its weights, or what is trained, by something else than the gradient.

    Args:
        how: What it does: "assign" the mean of its rows, "round" as another kind of GPU would, "unfreeze" its bias at
            the tenth step, or use one number of the rank as a "buffer".
    """

    def __init__(self, how: str) -> None:
        super().__init__(8, 3)
        self._how, self._steps = how, 0
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.bias.requires_grad_(how != "unfreeze")

    def forward(self, x: Tensor) -> Tensor:
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        self._steps += self.training
        self.calls += self.training
        if self.training and self._how == "assign" and self._steps > 4:
            self.bias.data[0] = x.mean()
        if self.training and self._how == "round":
            self.weight.data[0, 0] *= 1 + rank * 1e-6
        if self._how == "unfreeze" and self._steps == 10:
            self.bias.requires_grad_(True)
        if not self.training and self._how == "buffer":
            self.seen.fill_(rank)
        return super().forward(x)


class Langevin(torch.optim.SGD):
    """Gradient descent with noise, which draws from torch's generator in each step."""

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.data += 0.01 * torch.randn_like(parameter)
        return loss


def unequal(how: str) -> Recipe:
    model = nn.Linear(8, 3) if how == "noise" else Unequal(how)
    return Recipe(
        model=model, features="x", label="label", loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: (Langevin if how == "noise" else torch.optim.SGD)(parameters, 0.1, momentum=0.9),
    )  # fmt: skip
