"""Small networks that predict the body mass of a penguin, and its species and sex."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainyard.trainer import Head, Recipe


class Mass(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(11, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features).squeeze(1)


def network(width: int = 32, learning_rate: float = 0.02) -> Recipe:
    return Recipe(
        model=Mass(width),
        features="features",
        label="body_mass_kg",
        normalize="element",
        loss=nn.MSELoss(),
        learning_rate=learning_rate,
        metrics=["mae"],
        predict=lambda output: {"body_mass_kg": output},
    )


class Penguin(nn.Module):
    """A shared layer, and a head for each of three labels."""

    def __init__(self, species: int, sexes: int, width: int = 32) -> None:
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(3, width), nn.ReLU())
        self.heads = nn.ModuleDict(
            {"species": nn.Linear(width, species), "sex": nn.Linear(width, sexes), "mass": nn.Linear(width, 1)}
        )

    def forward(self, sizes: Tensor) -> dict[str, Tensor]:
        shared = self.shared(sizes)
        outputs = {name: head(shared) for name, head in self.heads.items()}
        return {**outputs, "mass": outputs["mass"].squeeze(1)}


def heads(categories: dict[str, int]) -> Recipe:
    return Recipe(
        model=Penguin(categories["species"], categories["sex"]),
        features="sizes",
        heads={
            "species": Head(classes=categories["species"], metrics=["accuracy"], predict=most_likely),
            "sex": Head(classes=categories["sex"], metrics=["accuracy"], predict=most_likely),
            "mass": Head(label="body_mass_kg", loss=nn.MSELoss(), metrics=["mae"], weight=2.0),
        },
        normalize="element",
        learning_rate=0.01,
    )


def most_likely(output: Tensor) -> dict[str, Tensor]:
    return {"class": output.argmax(1), "probability": torch.softmax(output, 1).amax(1)}
