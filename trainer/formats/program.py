"""The whole of a model as one traced program: raw columns in, prediction columns out, for any number of rows."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from trainyard.errors import TrainyardError
from trainyard.trainer.data.split_reader import dtype
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.trained_model import TrainedModel

ROWS = "rows"
"""The name of the dimension whose size is free."""


class Program(nn.Module):
    """Normalization, model and the recipe's `predict`, on the CPU; called with the columns by name."""

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        learnt = copy.deepcopy(model.recipe.model).cpu()
        self._network = (
            Network(learnt, model.artifact.inputs, model.artifact.normalization).eval().requires_grad_(False)
        )
        self._predict = model.recipe.predict

    def forward(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        return dict(self._predict(self._network(columns)))


def traced(model: TrainedModel) -> ExportedProgram:
    """Raises TrainyardError when torch.export cannot follow the model."""
    try:
        return torch.export.export(Program(model), (example(model),), dynamic_shapes=shapes(model))
    except Exception as error:
        raise TrainyardError(
            f"recipe {model.artifact.recipe!r}: torch.export cannot follow its model, or its predict: {error}. Branch on "
            "shapes and parameters alone, not on the values of tensors."
        ) from error


def example(model: TrainedModel) -> dict[str, Tensor]:
    """Two rows of zeros."""
    return {c.name: torch.from_numpy(np.zeros((2, *c.shape), dtype(c))) for c in model.artifact.inputs}


def shapes(model: TrainedModel) -> dict[str, dict[str, dict[int, Dim]]]:
    """Which dimension of each column of the argument `columns` is free."""
    rows = Dim(ROWS)
    return {"columns": {column.name: {0: rows} for column in model.artifact.inputs}}
