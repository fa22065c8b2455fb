"""Transfer learning: initialize a model with weights of another one, and freeze layers."""

from __future__ import annotations

import safetensors.torch
from torch import Tensor, nn

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact as artifacts
from trainyard.trainer.model import weights
from trainyard.trainer.model.recipe import Recipe


def initialize(recipe: Recipe) -> None:
    """Load the initial weights of the recipe's model, and freeze parameters.

    Raises:
        TrainyardError: No tensor matches the model, a named layer does not exist, or a frozen parameter is not loaded.
    """
    reinitialized = {key for name in recipe.reinitialize for key in _get_parameters(recipe.model, "reinitialize", name)}
    frozen = {name: _get_parameters(recipe.model, "freeze", name) for name in recipe.freeze}
    if recipe.start_from:
        loaded = _load_weights(recipe.model, recipe.start_from, reinitialized)
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
        return safetensors.torch.load(storage.read(uri))  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise TrainyardError(
            f"start_from={uri!r} does not exist. Write the URI of a model artifact, or of a safetensors file."
        ) from None


def _get_parameters(model: nn.Module, option: str, name: str) -> dict[str, nn.Parameter]:
    """Return the parameter with this name, or those of the submodule with this name."""
    parameters = {key: p for key, p in model.named_parameters() if key == name or key.startswith(f"{name}.")}
    if not parameters:
        layers = ", ".join(key for key, _ in model.named_children())
        raise TrainyardError(f"{option}={name!r}: the model has no parameters of that name; its layers are {layers}.")
    return parameters


def _summarize(tensors: dict[str, Tensor]) -> str:
    shapes = [f"{name} {list(tensor.shape)}" for name, tensor in tensors.items()][:4]
    return ", ".join(shapes) + (", ..." if len(tensors) > 4 else "")
