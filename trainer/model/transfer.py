"""Transfer learning: initialize a model with weights of another one, and freeze layers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import safetensors.torch
import torch
from torch import Tensor, nn

from trainyard.errors import TrainyardError
from trainyard.files.retries import read_file
from trainyard.schemas import model_artifact as artifacts
from trainyard.schemas.datasets.fitted_state import FittedReference
from trainyard.trainer.model.artifacts import weights
from trainyard.trainer.model.recipe import Recipe

T = TypeVar("T", bound=Tensor)


WRAPPERS = re.compile(r"^(module\.|model\.)+")
"""What DDP, Lightning and the like write before the names of a model's tensors."""
COMPILED = "_orig_mod."
"""What torch.compile writes before those of a compiled module."""


def initialize(recipe: Recipe, is_main: bool = True) -> list[str]:
    """Load the initial weights of the recipe's model, and freeze parameters.

    Args:
        recipe: The recipe.
        is_main: Whether this is the worker that logs how many tensors were loaded.

    Returns:
        A warning, if some tensors are neither loaded nor named by the recipe.

    Raises:
        TrainyardError: No tensor matches the model, a named layer does not exist, or a frozen parameter is not loaded.
    """
    model = recipe.model
    state, parameters_by_name = model.state_dict(), dict(model.named_parameters())
    reinitialized = {key for name in recipe.reinitialize for key in _select(state, model, "reinitialize", name)}
    frozen = {name: _select(parameters_by_name, model, "freeze", name) for name in recipe.freeze}
    warnings = []
    if recipe.start_from:
        loaded, text, is_complete = _load_weights(model, recipe.start_from, reinitialized)
        warnings += [] if is_complete else [text]
        if is_main:
            print(text, flush=True)
        for name, parameters in frozen.items():
            if missing := sorted(parameters.keys() - loaded):
                raise TrainyardError(
                    f"freeze={name!r}: {recipe.start_from} has no weights for {missing[0]}, which would keep its "
                    "random initial values. Freeze only layers that are loaded."
                )
    for parameters in frozen.values():
        for parameter in parameters.values():
            parameter.requires_grad_(False)
    return warnings


def replace_start(recipe: Recipe, start_from: str | None) -> Recipe:
    """Return a recipe that starts from the model of a job, if it names one. Raises TrainyardError if both name one."""
    if start_from is None:
        return recipe
    if recipe.start_from:
        raise TrainyardError(
            f"start_from={start_from!r}, and the recipe has start_from={recipe.start_from!r}; remove one of them."
        )
    return replace(recipe, start_from=start_from)


def compare_values(recipe: Recipe, fitted: FittedReference | None) -> list[str]:
    """Return a warning, if the initial weights are of a model whose categories or classes have other indices.

    Args:
        recipe: The recipe.
        fitted: What the dataset was fitted by.
    """
    if not recipe.start_from or recipe.start_from.endswith(artifacts.WEIGHTS_FILE):
        return []
    other = artifacts.find(recipe.start_from)[1].fitted
    sizes = {**(other.sizes if other else {}), **(fitted.sizes if fitted else {})}
    encoded = [name for name in recipe.columns if name in sizes]
    if other == fitted or not encoded:
        return []
    return [
        f"start_from={recipe.start_from!r}: the indices in column {encoded[0]!r} mean other values than in its "
        "dataset, which was fitted on other rows, so initial weights of embeddings and classes are those of others. "
        "Name these layers in reinitialize=, or export without refit."
    ]


def match_names(shapes: Mapping[str, torch.Size], others: Mapping[str, torch.Size]) -> dict[str, str]:
    """Return which tensors of two models have the same name and shape, as they are or without prefixes of wrappers.

    Args:
        shapes: The shapes of a model's tensors, by name.
        others: Those of the other model.

    Returns:
        The names in the other model, by those in the first one.
    """
    matched = {name: name for name, shape in shapes.items() if others.get(name) == shape}
    unused = {_unwrap(name): name for name in others if name not in matched}
    for name, shape in shapes.items():
        other = unused.get(_unwrap(name))
        if name not in matched and other is not None and others[other] == shape:
            matched[name] = other
    return matched


def _unwrap(name: str) -> str:
    return WRAPPERS.sub("", name.replace(COMPILED, ""))


def _load_weights(model: nn.Module, uri: str, reinitialized: set[str]) -> tuple[set[str], str, bool]:
    """Load all tensors whose names and shapes match.

    Returns:
        Their names, a sentence about them, and whether the model has no others, but for those to reinitialize.
    """
    tensors, state = dict(sorted(_read_tensors(uri).items())), model.state_dict(keep_vars=True)  # read in any order
    wanted = {name: tensor for name, tensor in state.items() if name not in reinitialized}
    shapes, stored = ({name: tensor.shape for name, tensor in each.items()} for each in (wanted, tensors))
    matched = match_names(shapes, stored)
    if not matched:
        raise TrainyardError(
            f"start_from={uri!r} has no tensor that matches the model: it has {_summarize(tensors)}; the model has "
            f"{_summarize(state)}."
        )
    model.load_state_dict({name: tensors[other] for name, other in matched.items()}, strict=False)
    text = f"start_from={uri!r} has initial values for {len(matched)} of the {len(state)} tensors of the model."
    loaded = {id(state[name]) for name in matched}
    missing = {name: tensor for name, tensor in wanted.items() if id(tensor) not in loaded}
    unused = {name: tensor for name, tensor in tensors.items() if name not in matched.values()}
    if missing:
        not_used = f"; not used are {_summarize(unused)}" if unused else ""
        text += (
            f" {len(missing)} others keep random values: {_summarize(missing)}{not_used}. Correct the names, or name "
            "these layers in reinitialize=."
        )
    return set(matched), text, not missing


def _read_tensors(uri: str) -> dict[str, Tensor]:
    if not uri.endswith(artifacts.WEIGHTS_FILE):
        model, artifact = artifacts.find(uri)
        if artifact.ensemble:
            names = ", ".join(member.uri for member in artifact.ensemble.members)
            raise TrainyardError(f"start_from={uri!r} is an ensemble; write one of its members: {names}.")
        return weights.read(model, artifact)
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


def _summarize(tensors: Mapping[str, Tensor]) -> str:
    shapes = [f"{name} {list(tensor.shape)}" for name, tensor in tensors.items()][:4]
    return ", ".join(shapes) + (", ..." if len(tensors) > 4 else "")
