"""The two networks: one draws digits, the other one tells them from real ones."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LATENT, PIXELS, WIDTH = 16, 64, 128


def generator() -> nn.Module:
    """Return a network from noise (rows, 16) to images (rows, 64) with values from -1 to 1."""
    return nn.Sequential(
        nn.Linear(LATENT, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(),
        nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU(),
        nn.Linear(WIDTH, PIXELS), nn.Tanh(),
    )  # fmt: skip


def discriminator() -> nn.Module:
    """Return a network from images (rows, 64) to logits (rows, 1), positive for real images."""
    return nn.Sequential(
        nn.Linear(PIXELS, WIDTH), nn.LeakyReLU(0.2),
        nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2),
        nn.Linear(WIDTH, 1),
    )  # fmt: skip


def frechet_distance(real: Tensor, drawn: Tensor) -> float:
    """Return the Fréchet distance of the pixels' means and covariances (rows, 64): 0 if they are equal."""
    means = (real.mean(0) - drawn.mean(0)).square().sum()
    first, second = real.T.cov().double(), drawn.T.cov().double()
    root = torch.linalg.eigvals(first @ second).real.clamp(min=0).sqrt().sum()
    return float(means + first.trace() + second.trace() - 2 * root)
