"""Recipes of models with embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainyard.trainer.model.recipe import Recipe


class Embedded(nn.Module):
    """Embed each column of categories, and return an output for each class."""

    def __init__(self, sizes: list[int], classes: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(size, 4) for size in sizes)
        self.output = nn.Linear(4 * len(sizes), classes)

    def forward(self, *columns: Tensor) -> Tensor:
        parts = [embed(column) for embed, column in zip(self.embeddings, columns, strict=True)]
        return self.output(torch.cat(parts, 1))  # type: ignore[no-any-return]


def kinds(categories: dict[str, int]) -> Recipe:
    features = ["city", "store", "open"]
    return Recipe(
        model=Embedded([categories[name] for name in features], categories["kind"]), features=features, label="kind",
        classes=categories["kind"], predict=lambda output: {"kind": output.argmax(1), "score": output.max(1).values},
    )  # fmt: skip


class Passing(nn.Module):
    """Return the number of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.ones(()), requires_grad=False)
        self.other = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.one + 0 * self.other


def passing() -> Recipe:
    return Recipe(model=Passing(), features="x", label="key", loss=lambda output, label: (output - label).abs().mean())


def cities(categories: dict[str, int]) -> Recipe:
    model = Embedded([categories["city"]], 1)
    return Recipe(model=model, features="city", step=lambda model, batch: model(batch).square().mean())


def kind_of_city(categories: dict[str, int]) -> Recipe:
    classes = categories["kind"]
    return Recipe(
        model=Embedded([categories["city"]], classes), features="city", label="kind", classes=classes,
        learning_rate=0.1, predict=lambda output: {"class": output.argmax(1)},
    )  # fmt: skip


class Sum(Embedded):
    """Return one number for each row."""

    def forward(self, *columns: Tensor) -> Tensor:
        return super().forward(*columns).squeeze(1)


def sales(categories: dict[str, int]) -> Recipe:
    features = ["store", "product", "weather", "weekday"]
    model = Sum([categories[name] for name in features], 1)
    return Recipe(model=model, features=features, label="sold", loss=nn.MSELoss(), learning_rate=0.02)


class WordCounts(nn.Module):
    """Return an output for each class from the mean embedding of words."""

    def __init__(self, words: int, classes: int) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(words, 8), nn.Linear(8, classes)

    def forward(self, words: Tensor, words_mask: Tensor) -> Tensor:
        mask = words_mask[..., None]
        mean = (self.embedding(words) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return self.output(mean)  # type: ignore[no-any-return]


def kind_of_words(categories: dict[str, int]) -> Recipe:
    classes = categories["kind"]
    return Recipe(
        model=WordCounts(categories["words"], classes), features="words", label="kind", classes=classes,
        learning_rate=0.03, predict=lambda output: {"class": output.argmax(1)},
    )  # fmt: skip
