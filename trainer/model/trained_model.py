"""Load a model artifact and apply it to rows. Nothing is unpickled."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import safetensors.torch
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact as bundles
from trainyard.schemas.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.data import decoding, jagged
from trainyard.trainer.data.jagged import Jagged
from trainyard.trainer.model import recipe as recipes
from trainyard.trainer.model.network import Network
from trainyard.trainer.model.recipe import Recipe

Given = NDArray[Any] | Tensor | Jagged | Sequence[NDArray[Any]] | Sequence[bytes]
"""One column of some rows."""


class _Reached(Exception):  # noqa: N818 -- no error
    """A forward pass came to the layer that it was to come to."""

    def __init__(self, output: Tensor) -> None:
        self.output = output


def _stop(module: nn.Module, inputs: Any, output: Tensor) -> None:
    raise _Reached(output)


class TrainedModel:
    """A trained network, ready to be applied to columns of rows."""

    def __init__(self, artifact: ModelArtifact, recipe: Recipe, network: Network) -> None:
        self.artifact = artifact
        self.recipe = recipe
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._network = network.to(self.device).eval()

    @torch.inference_mode()
    def output(self, columns: Mapping[str, Given]) -> Tensor:
        """What the network returns for some rows; input arrays are `(rows, *shape)`.

        Of rows that differ in length a Jagged, or a list of arrays `(length, *shape)`; of bytes to decode a list.
        """
        batch: dict[str, Tensor] = {}
        for column in self.artifact.inputs:
            batch |= self._input(column, columns)
        return self._network({name: tensor.to(self.device) for name, tensor in batch.items()})  # type: ignore[no-any-return]

    @torch.inference_mode()
    def features(self, layer: str, columns: Mapping[str, Given]) -> Tensor:
        """What the submodule `layer` returns for some rows, (rows, elements); what comes after it is not computed."""
        try:
            module = self.recipe.model.get_submodule(layer)
        except AttributeError:
            there = ", ".join(name for name, _ in self.recipe.model.named_modules() if name)
            raise TrainyardError(f"the network has no layer {layer!r}; it has {there}.") from None
        hook = module.register_forward_hook(_stop)
        try:
            self.output(columns)
        except _Reached as reached:
            return reached.output.flatten(1)
        finally:
            hook.remove()
        raise TrainyardError(f"layer {layer!r} is not called when the network is, so it has no output.")

    @torch.inference_mode()
    def predict(self, columns: Mapping[str, Given]) -> dict[str, NDArray[Any]]:
        """The recipe's prediction columns for some rows, as arrays (rows, ...)."""
        return {name: tensor.cpu().numpy() for name, tensor in self.recipe.predict(self.output(columns)).items()}

    def _input(self, column: Column, columns: Mapping[str, Given]) -> dict[str, Tensor]:
        if column.name not in columns:
            raise TrainyardError(
                f"the model takes column {column.name!r} ({column.type}, shape {list(column.shape)}), "
                f"but the rows have {', '.join(columns)}."
            )
        values = columns[column.name]
        if column.name in self.recipe.decode and not isinstance(values, np.ndarray | Tensor):
            values = decoding.decode_rows(column.name, self.recipe.decode[column.name], values)
        if column.kind == "list":
            rows = values if isinstance(values, Jagged) else Jagged.from_rows([np.asarray(row) for row in values])
            if rows.values.shape[1:] != column.shape:
                raise self._unlike(column, rows.values.shape[1:])
            return jagged.to_tensors(column.name, rows, self.recipe.sequences)
        if isinstance(values, Jagged):
            raise TrainyardError(
                f"the model takes column {column.name!r} with shape {list(column.shape)}, but its rows hold bytes, or "
                "differ in length."
            )
        tensor = values if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
        size = 1
        for extent in column.shape:
            size *= extent
        if tensor[:1].numel() not in (size, 0):
            raise self._unlike(column, tuple(tensor.shape[1:]))
        return {column.name: tensor.reshape(-1, *column.shape)}

    def _unlike(self, column: Column, found: tuple[int, ...]) -> TrainyardError:
        of = "elements of " if column.kind == "list" else ""
        return TrainyardError(
            f"the model takes column {column.name!r} with {of}shape {list(column.shape)}, "
            f"but its rows have {of}shape {list(found)}."
        )


def load_model(model: str, recipe: Recipe | None = None) -> TrainedModel:
    """Load the current bundle at `model`; `recipe` stands in for one that cannot be imported here."""
    return restore_model(model, bundles.read_current(model), recipe)


def restore_model(model: str, artifact: ModelArtifact, recipe: Recipe | None = None) -> TrainedModel:
    """Load one particular `bundle` of `model`."""
    recipe = recipe or recipes.load(artifact.recipe, artifact.recipe_params)
    try:
        recipe.model.load_state_dict(read_weights(model, artifact))
    except RuntimeError as error:
        raise TrainyardError(
            f"recipe {artifact.recipe!r} builds another network than the one in {model}: {error}. "
            "Use the recipe as it was when the model was trained."
        ) from error
    return TrainedModel(artifact, recipe, Network(recipe.model, artifact.inputs, artifact.normalization))


def read_weights(model: str, artifact: ModelArtifact) -> dict[str, Tensor]:
    """The tensors of a `bundle` of `model`. Raises TrainyardError when they are not those that were written."""
    data = storage.read(storage.join(model, artifact.weights))
    if hashlib.sha256(data).hexdigest() != artifact.weights_sha256:
        raise TrainyardError(f"{model}/{artifact.weights} was altered: its sha256 differs from the bundle's.")
    return safetensors.torch.load(data)  # type: ignore[no-any-return]
