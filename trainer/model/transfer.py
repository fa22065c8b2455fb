"""Transfer: a network that starts from weights of another, and layers of it that stay as they are."""

from __future__ import annotations

import safetensors.torch
from torch import Tensor, nn

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact as bundles
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.model.trained_model import read_weights


def begin(recipe: Recipe) -> None:
    """Give the recipe's model the weights that it starts from, and freeze what is to stay.

    Raises TrainyardError when no tensor fits, and for a frozen layer that is not there or that nothing was loaded into.
    """
    fresh = {key for name in recipe.reinitialize for key in _parameters(recipe.model, "reinitialize", name)}
    frozen = {name: _parameters(recipe.model, "freeze", name) for name in recipe.freeze}
    if recipe.start_from:
        started = _load(recipe.model, recipe.start_from, fresh)
        for name, parameters in frozen.items():
            if missing := sorted(parameters.keys() - started):
                raise TrainyardError(
                    f"freeze={name!r}: {recipe.start_from} has nothing for {missing[0]}, which would stay as chance "
                    "made it. Freeze layers that are loaded alone."
                )
    for parameters in frozen.values():
        for parameter in parameters.values():
            parameter.requires_grad_(False)


def _load(model: nn.Module, uri: str, fresh: set[str]) -> set[str]:
    """The names of the tensors that were loaded."""
    found, own = _weights(uri), model.state_dict()
    wanted = {name: tensor.shape for name, tensor in own.items() if name not in fresh}
    fitting = {name: tensor for name, tensor in found.items() if wanted.get(name) == tensor.shape}
    if not fitting:
        raise TrainyardError(
            f"start_from={uri!r} has no tensor that fits: it has {_few(found)}, and the model {_few(own)}."
        )
    model.load_state_dict(fitting, strict=False)
    return set(fitting)


def _weights(uri: str) -> dict[str, Tensor]:
    if not uri.endswith(".safetensors"):
        return read_weights(uri, bundles.read_current(uri))
    try:
        return safetensors.torch.load(storage.read(uri))  # type: ignore[no-any-return]
    except FileNotFoundError:
        raise TrainyardError(f"start_from={uri!r} is not there. Name a bundle, or a file of safetensors.") from None


def _parameters(model: nn.Module, option: str, name: str) -> dict[str, nn.Parameter]:
    """The parameters that are called `name`, or lie in the submodule of that name."""
    found = {key: p for key, p in model.named_parameters() if key == name or key.startswith(f"{name}.")}
    if not found:
        there = ", ".join(key for key, _ in model.named_children())
        raise TrainyardError(f"{option}={name!r}: the model has no parameters of that name; its layers are {there}.")
    return found


def _few(tensors: dict[str, Tensor]) -> str:
    shown = [f"{name} {list(tensor.shape)}" for name, tensor in tensors.items()][:4]
    return ", ".join(shown) + (", ..." if len(tensors) > 4 else "")
