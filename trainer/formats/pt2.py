"""The file of torch.export: `torch.export.load(file).module()` takes a dict of columns, and returns one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.formats import program
from trainyard.trainer.model.artifacts.trained_model import restore_model, to_array

FILE = "model.pt2"
INDEX = ""
PACKAGES: tuple[str, ...] = ()


def write(model: str, artifact: ModelArtifact, path: Path) -> None:
    """Write the model to the file `path`."""
    torch.export.save(program.trace(restore_model(model, artifact)), path)


def predict(path: Path, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the predictions of the file `path` for some rows."""
    with torch.no_grad():
        predicted = torch.export.load(path).module()({name: torch.from_numpy(rows) for name, rows in columns.items()})
    return {name: to_array(name, tensor) for name, tensor in predicted.items()}
