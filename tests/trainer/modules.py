"""LightningModules for the trainer's tests, and recipes of them."""

from __future__ import annotations

from typing import Any

import torch
from lightning import LightningModule
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, SequentialLR, StepLR
from torchmetrics.classification import MulticlassAccuracy

from trainyard.trainer.model.integrations import lightning
from trainyard.trainer.model.recipe import Recipe


class Net(LightningModule):
    """Record the loss of each training step."""

    def __init__(self, interval: str = "epoch") -> None:
        super().__init__()
        self.interval = interval
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        self.losses: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        x, label = batch
        loss = nn.functional.cross_entropy(self(x), label)
        self.log("loss", loss)
        if self.training:
            self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)
        scheduler = SequentialLR(optimizer, [StepLR(optimizer, 1, 0.5), StepLR(optimizer, 2, 0.7)], [2])
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


class DictNet(Net):
    """Take a dict as batch, and return a dict."""

    def training_step(self, batch: dict[str, Tensor]) -> dict[str, Any]:
        return {"loss": nn.functional.cross_entropy(self(batch["x"]), batch["label"]), "rows": len(batch["x"])}

    def configure_optimizers(self) -> tuple[list[Any], list[LRScheduler]]:
        optimizer = torch.optim.SGD(self.parameters(), 0.1)
        return [optimizer], [StepLR(optimizer, 1, 0.5)]


class Words(LightningModule):
    """The mean over a row's tokens and frames, of which the default batch is (tokens, mask, frames, mask, label)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(10, 4), nn.Linear(8, 3)

    def forward(self, tokens: Tensor, mask: Tensor, frames: Tensor, _: Tensor) -> Tensor:
        rows = torch.cat([self.embed(tokens), frames], 2) * mask[:, :, None]
        return self.head(rows.sum(1) / mask.sum(1, keepdim=True))  # type: ignore[no-any-return]

    def training_step(self, batch: tuple[Tensor, ...]) -> Tensor:
        *features, label = batch
        return nn.functional.cross_entropy(self(*features), label)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 0.05)


class NamedWords(Words):
    """Take the columns by name."""

    def training_step(self, batch: dict[str, Tensor]) -> Tensor:  # type: ignore[override]
        names = ("tokens", "tokens_mask", "frames", "frames_mask", "label")
        return super().training_step(tuple(batch[name] for name in names))


def words(named: bool = False) -> Recipe:
    return lightning.from_lightning(
        NamedWords() if named else Words(), features=["tokens", "frames"], label="label", classes=3,
        normalize="element", batch=dict if named else None,
    )  # fmt: skip


def net(interval: str = "epoch", normalize: Any = None) -> Recipe:
    return lightning.from_lightning(
        Net(interval), features="x", label="label", classes=3, normalize=normalize,
        metrics={"accuracy": MulticlassAccuracy(3, average="micro")},
        predict=lambda output: {"class_": output.argmax(1)},
    )  # fmt: skip


def dict_batches() -> Recipe:
    return lightning.from_lightning(DictNet(), features="x", label="label", batch=dict)
