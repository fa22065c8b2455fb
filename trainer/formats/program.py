"""A whole model as one traced program: raw columns in, prediction columns out, for any number of rows."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from trainyard.errors import TrainyardError
from trainyard.trainer.data.reading.blocks import dtype
from trainyard.trainer.model.artifacts.trained_model import TrainedModel

ROWS = "rows"
"""The name of the dynamic dimension."""


class Program(nn.Module):
    """Normalization, model and the recipe's `predict`, on the CPU."""

    def __init__(self, model: TrainedModel) -> None:
        super().__init__()
        self._network = copy.deepcopy(model.network).cpu().eval().requires_grad_(False)
        self._predict = model.recipe.predict_columns

    def forward(self, columns: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the prediction for some rows, by column."""
        return dict(self._predict(self._network(columns)))


def trace(model: TrainedModel) -> ExportedProgram:
    """Return the program of a model.

    Raises:
        TrainyardError: torch.export cannot trace it, or it is an ensemble whose members decode a column differently.
    """
    _check_decoders(model)
    try:
        return torch.export.export(Program(model), (build_example(model),), dynamic_shapes=build_shapes(model))
    except Exception as error:
        raise TrainyardError(
            f"recipe {model.artifact.recipe!r}: torch.export cannot trace its model, or its predict: {error}. Branch "
            "on shapes and parameters only, not on the values of tensors."
        ) from error


def _check_decoders(model: TrainedModel) -> None:
    """Check that all members of an ensemble take the same numbers: a program has one input for each column."""
    owners: dict[str, TrainedModel] = {}
    for member in model.members:
        _check_decoders(member)
        for column, decode in member.recipe.decode.items():
            owner = owners.setdefault(column, member)
            if owner.recipe.decode[column] != decode:
                raise TrainyardError(
                    f"{owner.uri} and {member.uri} decode the column {column!r} by two functions, and a program takes "
                    f"the decoded column once. Write one function of a module as decode={{{column!r}: ...}} in both "
                    "recipes, or export as mlflow."
                )


def build_example(model: TrainedModel) -> dict[str, Tensor]:
    """Return an input of two rows of zeros."""
    return {c.name: torch.from_numpy(np.zeros((2, *c.shape), dtype(c))) for c in model.artifact.inputs}


def build_shapes(model: TrainedModel) -> dict[str, dict[str, dict[int, Dim]]]:
    """Return the dynamic dimensions of each column of the argument `columns`."""
    rows = Dim(ROWS)
    return {"columns": {column.name: {0: rows} for column in model.artifact.inputs}}
