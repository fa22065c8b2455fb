"""The models of a loop: networks that recipes build, and can build again where the model is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.model_artifact import Normalization
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe


@dataclass(frozen=True, eq=False)
class Model:
    """A network, with what an artifact of it needs.

    Attributes:
        path: The import path of the recipe.
        params: Its parameters.
        recipe: The recipe.
        network: The recipe's model behind the normalization.
        inputs: The feature columns.
        labels: The label column of each head; that of a recipe without heads has an empty name.
        normalization: The normalization of each feature column that has one.
        loader: Reads rows of the training split, for checks.
        warnings: What of the recipe may not do what its author expects, a sentence each.
    """

    path: str
    params: dict[str, Any]
    recipe: Recipe
    network: Network
    inputs: tuple[Column, ...]
    labels: Mapping[str, Column]
    normalization: Mapping[str, Normalization]
    loader: Loader
    warnings: Sequence[str]


class Builder(Protocol):
    """Builds the models and the loaders of a loop for its dataset."""

    def build_model(self, path: str, params: Mapping[str, Any]) -> Model:
        """Return the model of a recipe, on the CPU."""

    def build_loader(self, split: str, recipe: Recipe | None, columns: Sequence[str], trains: bool) -> Loader:
        """Return the loader of a split, with the columns of a recipe, and further ones."""

    def check(self, models: Sequence[Model], loader: Loader) -> None:
        """Check before the training that models can be trained on the batches of a loader, and written."""


def find_path(recipe: str | Callable[..., Recipe]) -> str:
    """Return the import path of a function that returns a recipe.

    Raises:
        TrainyardError: It is no function of a module, which another process could import.
    """
    if isinstance(recipe, str):
        return recipe
    path = f"{getattr(recipe, '__module__', '')}:{getattr(recipe, '__qualname__', '')}"
    if not re.fullmatch(r"[\w.]+:\w+", path) or path.startswith("__main__:"):
        raise TrainyardError(
            f"run.model({recipe!r}): evaluations and predictions import the function that builds the model. Write a "
            "function of a module that returns a Recipe, or its import path, 'module:function'."
        )
    return path
