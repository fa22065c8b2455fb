"""The whole of a model as one traced program: raw columns in, prediction columns out, for any number of rows."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from trainer.bundle import Model
from trainer.dataset import dtype
from trainer.network import Network
from trainyard.contract.errors import TrainyardError

ROWS = "rows"
"""The name of the dimension whose size is free."""


class Program(nn.Module):
    """Normalisation, model and the recipe's `predict`, on the CPU; called with the columns by name."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        learnt = copy.deepcopy(model.recipe.model).cpu()
        self._network = Network(learnt, model.bundle.inputs, model.bundle.normalisation).eval().requires_grad_(False)
        self._predict = model.recipe.predict

    def forward(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        return dict(self._predict(self._network(columns)))


def traced(model: Model) -> ExportedProgram:
    """Raises TrainyardError when torch.export cannot follow the model."""
    try:
        return torch.export.export(Program(model), (example(model),), dynamic_shapes=shapes(model))
    except Exception as error:
        raise TrainyardError(
            f"recipe {model.bundle.recipe!r}: torch.export cannot follow its model, or its predict: {error}. Branch on "
            "shapes and parameters alone, not on the values of tensors."
        ) from error


def example(model: Model) -> dict[str, Tensor]:
    """Two rows of zeros."""
    return {c.name: torch.from_numpy(np.zeros((2, *c.shape), dtype(c))) for c in model.bundle.inputs}


def shapes(model: Model) -> dict[str, dict[str, dict[int, Dim]]]:
    """Which dimension of each column of the argument `columns` is free."""
    rows = Dim(ROWS)
    return {"columns": {column.name: {0: rows} for column in model.bundle.inputs}}
