"""A small network that predicts the body mass of a penguin."""

from __future__ import annotations

from torch import Tensor, nn

from trainyard.trainer import Recipe


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
