"""A transformer of two layers that predicts the next character at every position."""

from __future__ import annotations

import torch
from torch import Tensor, nn, optim
from torchmetrics.text import Perplexity

from trainyard.trainer import Recipe

ASCII = 128


class Causal(nn.Module):
    def __init__(self, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.character = nn.Embedding(ASCII, width)
        self.position = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.output = nn.Linear(width, ASCII)

    def forward(self, characters: Tensor) -> Tensor:
        """Return the logits (rows, length, 128) of the next characters; each depends on those before it only."""
        later = nn.Transformer.generate_square_subsequent_mask(characters.shape[1], characters.device)
        embedded = self.character(characters) + self.position
        return self.output(self.layers(embedded, mask=later, is_causal=True))


def cross_entropy(output: Tensor, following: Tensor) -> Tensor:
    """Return the mean over rows and positions."""
    return nn.functional.cross_entropy(output.flatten(0, 1), following.flatten())


def perplexity() -> Perplexity:
    return Perplexity()


def causal(length: int, width: int = 32, heads: int = 4, layers: int = 2) -> Recipe:
    return Recipe(
        model=Causal(length, width, heads, layers),
        features="characters",
        label="next",
        loss=cross_entropy,
        learning_rate=0.01,
        schedule=lambda optimizer, updates: optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=updates),
        metrics={"perplexity": perplexity()},
        predict=lambda output: {"next": output[:, -1].argmax(1)},
    )
