"""The network and the numbers that are the same in every job. They are not counted as lines of a job."""

from __future__ import annotations

import os

from torch import nn

SOURCE = os.environ["PEERS_SOURCE"]
"""The folder of the Parquet files: `fold=train` and `fold=test`, columns `image` (uint8 values) and `label`."""
STORAGE = os.environ["PEERS_STORAGE"]
"""The folder for everything that a job stores; empty when a run begins."""
VALUES, EPOCHS, LOCAL_BATCH = (int(os.environ[f"PEERS_{name}"]) for name in ("VALUES", "EPOCHS", "BATCH"))
LEARNING_RATE, MOMENTUM = 0.05, 0.9


def build() -> nn.Module:
    if VALUES != 28 * 28:
        return nn.Sequential(nn.Linear(VALUES, 64), nn.ReLU(), nn.Linear(64, 10))
    return nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)), nn.Conv2d(1, 16, 5, stride=2), nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
