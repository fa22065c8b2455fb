"""A network that scores a row, trained on the order of pairs of rows."""

from __future__ import annotations

from torch import Tensor, nn

from trainyard.trainer import Recipe


class Score(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(9, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(self, measured: Tensor) -> Tensor:
        return self.layers(measured).squeeze(1)


def pairwise(score: Tensor, relevance: Tensor) -> Tensor:
    """Return the logistic loss of all pairs of rows of the batch, the first of which is more relevant (RankNet)."""
    more = (relevance[:, None] > relevance[None, :]).float()
    losses = nn.functional.softplus(score[None, :] - score[:, None])
    return (more * losses).sum() / more.sum().clamp(min=1)


def scorer(width: int = 16) -> Recipe:
    return Recipe(
        model=Score(width),
        features="measured",
        label="relevance",
        normalize="element",
        loss=pairwise,
        learning_rate=0.01,
        predict=lambda output: {"score": output},
    )
