"""The file of torch.export: `torch.export.load(file).module()` takes a dict of columns, and returns one."""

from __future__ import annotations

from pathlib import Path

import torch

from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.formats import program
from trainyard.trainer.model.trained_model import restore_model

FILE = "model.pt2"
INDEX = ""
PACKAGES: tuple[str, ...] = ()


def write(model: str, artifact: ModelArtifact, path: Path) -> None:
    """Write the model to the file `path`."""
    torch.export.save(program.trace(restore_model(model, artifact)), path)
