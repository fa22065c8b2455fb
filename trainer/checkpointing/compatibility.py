"""Check that a training can go on from a checkpoint, although its recipe or options have changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainyard.errors import TrainyardError
from trainyard.trainer.model.loss_kinds import get_function, get_name
from trainyard.trainer.model.recipe import Recipe

SAMPLES = 12
"""The steps of which a function of the step is described by its values."""
_OF_NO_EFFECT = {"optimizer", "verbose", "_step_count", "_is_initial", "_get_lr_called_within_step", "_last_lr"}
"""Attributes of schedules that are no settings."""


def describe_recipe(recipe: Recipe, optimizer: Optimizer) -> dict[str, str]:
    """Return what the state of a checkpoint depends on in the code of a recipe, as texts.

    Args:
        recipe: The recipe.
        optimizer: Its optimizer, before any step. Checkpoints have its settings, such as the learning rate, too.
    """
    groups = [
        {name: value for name, value in group.items() if isinstance(value, bool | int | float | tuple)}
        for group in optimizer.param_groups
    ]
    of_heads = {
        name: [head.label, _describe(head.loss) if recipe.step is None else "step", head.weight]
        for name, head in recipe.heads.items()
    }
    return {
        "features": json.dumps(recipe.inputs),
        "label": json.dumps(recipe.label),
        "freeze": json.dumps(sorted(recipe.freeze)),
        "normalize": json.dumps(recipe.normalize),
        "schedule_by": json.dumps(recipe.schedule_by),
        "loss": _describe(recipe.loss) if recipe.step is None else "step",
        **({"heads": json.dumps(of_heads)} if of_heads else {}),
        "optimizer": f"{type(optimizer).__name__} {json.dumps(groups, default=float)}",
    }


def describe_schedule(schedule: LRScheduler, steps: int) -> dict[str, str]:
    """Return the class and the settings of a schedule, as `describe_recipe` returns the others.

    Functions of the step are described by some of their values.

    Args:
        schedule: The schedule, before any step.
        steps: The number of its steps in the whole training.
    """
    return {"schedule": _describe(schedule, steps)}


def _describe(value: Any, steps: int = 1) -> str:
    """Return the class, or the name, and the settings of a loss or a schedule."""
    if isinstance(value, LRScheduler):
        settings = {name: setting for name, setting in vars(value).items() if name not in _OF_NO_EFFECT}
        return f"{type(value).__name__} {json.dumps(_simplify(settings, steps))}"
    function = get_function(value)
    settings = dict(value.keywords) if isinstance(value, partial) else {}
    if isinstance(function, nn.Module) and type(function).__module__.startswith("torch."):
        attributes = vars(function) | dict(function.named_buffers())
        settings |= {n: setting for n, setting in attributes.items() if n != "training" and not n.startswith("_")}
    return f"{get_name(value)} {json.dumps(_simplify(settings, steps))}"


def _simplify(value: Any, steps: int) -> Any:
    """Return a setting as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _simplify(part, steps) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_simplify(part, steps) for part in value]
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, LRScheduler):
        return _describe(value, steps)
    with suppress(Exception):  # not a function of a number
        return [float(f"{value(steps * number // SAMPLES):.6g}") for number in range(SAMPLES)]
    return getattr(value, "__name__", type(value).__name__)


def check_resumable(
    uri: str, loop: Mapping[str, Any], recipe: Mapping[str, str], workers: int, has_schedule: bool, epochs: int
) -> None:
    """Check that the checkpoint at `uri` is one of this training.

    Args:
        uri: The checkpoint.
        loop: Its state of the loop.
        recipe: What `describe_recipe` returned now.
        workers: The size of the group now. The optimizer and the schedule may depend on it, so they are not compared
            with those of a group of another size.
        has_schedule: Whether the recipe has a schedule now.
        epochs: The option `epochs`.

    Raises:
        TrainyardError: What the recipe trains, or how, is not the same.
    """
    before, remove = loop.get("epochs"), f"remove the folder {uri.rpartition('/')[0]} to start from the beginning."
    if has_schedule == (loop["schedule"] is None):
        has, had = ("a schedule", "none") if has_schedule else ("no schedule", "one")
        raise TrainyardError(
            f"the recipe has {has}, but had {had} when the checkpoint {uri} was saved. Use the recipe as it was, or "
            f"{remove}"
        )
    if has_schedule and before is not None and before != epochs:
        raise TrainyardError(
            f"epochs={epochs}, but the checkpoint {uri} was saved with epochs={before}, and the recipe's schedule "
            f"depends on it. Write epochs={before} again, or {remove}"
        )
    for name, now in recipe.items():
        then = loop.get("recipe", {}).get(name, now)
        if then != now and (name not in ("optimizer", "schedule") or loop["workers"] == workers):
            raise TrainyardError(
                f"the recipe's {name} is {now}, but was {then} when the checkpoint {uri} was saved. Use the recipe as "
                f"it was, or {remove}"
            )
