"""torch.export's own file: `torch.export.load(file).module()` takes a dict of columns, and returns one."""

from __future__ import annotations

from pathlib import Path

import torch

from trainer import bundle as trained
from trainer.formats import program
from trainyard.contract.bundle import ModelBundle

FILE = "model.pt2"
PACKAGES: tuple[str, ...] = ()


def write(model: str, bundle: ModelBundle, path: Path) -> None:
    torch.export.save(program.traced(trained.restore(model, bundle)), path)
