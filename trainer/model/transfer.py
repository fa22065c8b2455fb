"""Transfer learning: initialize a model with weights of another one, and freeze layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import safetensors.torch
from torch import Tensor, nn

from trainyard.errors import TrainyardError
from trainyard.retries import read_file
from trainyard.schemas import model_artifact as artifacts
from trainyard.trainer.model import weights
from trainyard.trainer.model.recipe import Recipe

T = TypeVar("T", bound=Tensor)


def initialize(recipe: Recipe) -> None:
    """Load the initial weights of the recipe's model, and freeze parameters.

    Raises:
        TrainyardError: No tensor matches the model, a named layer does not exist, or a frozen parameter is not loaded.
    """
    model = recipe.model
    state, parameters_by_name = model.state_dict(), dict(model.named_parameters())
    reinitialized = {key for name in recipe.reinitialize for key in _select(state, model, "reinitialize", name)}
    frozen = {name: _select(parameters_by_name, model, "freeze", name) for name in recipe.freeze}
    if recipe.start_from:
        loaded = _load_weights(model, recipe.start_from, reinitialized)
        for name, parameters in frozen.items():
            if missing := sorted(parameters.keys() - loaded):
                raise TrainyardError(
                    f"freeze={name!r}: {recipe.start_from} has no weights for {missing[0]}, which would keep its "
                    "random initial values. Freeze only layers that are loaded."
                )
    for parameters in frozen.values():
        for parameter in parameters.values():
            parameter.requires_grad_(False)


def _load_weights(model: nn.Module, uri: str, reinitialized: set[str]) -> set[str]:
    """Load all tensors whose names and shapes match, and return their names."""
    tensors, state = _read_tensors(uri), model.state_dict()
    shapes = {name: tensor.shape for name, tensor in state.items() if name not in reinitialized}
    matching = {name: tensor for name, tensor in tensors.items() if shapes.get(name) == tensor.shape}
    if not matching:
        raise TrainyardError(
            f"start_from={uri!r} has no tensor that matches the model: it has {_summarize(tensors)}; the model has "
            f"{_summarize(state)}."
        )
    model.load_state_dict(matching, strict=False)
    return set(matching)


def _read_tensors(uri: str) -> dict[str, Tensor]:
    if not uri.endswith(".safetensors"):
        return weights.read(uri, artifacts.read_current(uri))
    try:
        return safetensors.torch.load(read_file(uri))  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise TrainyardError(
            f"start_from={uri!r} does not exist. Write the URI of a model artifact, or of a safetensors file."
        ) from None


def _select(tensors: Mapping[str, T], model: nn.Module, option: str, name: str) -> dict[str, T]:
    """Return the tensor with this name, or those of the submodule with this name."""
    selected = {key: tensor for key, tensor in tensors.items() if key == name or key.startswith(f"{name}.")}
    if not selected:
        layers = ", ".join(key for key, _ in model.named_children())
        raise TrainyardError(f"{option}={name!r}: the model has no parameters of that name; its layers are {layers}.")
    return selected


def _summarize(tensors: dict[str, Tensor]) -> str:
    shapes = [f"{name} {list(tensor.shape)}" for name, tensor in tensors.items()][:4]
    return ", ".join(shapes) + (", ..." if len(tensors) > 4 else "")
