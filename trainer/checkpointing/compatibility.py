"""Check that a training can go on from a checkpoint, although its recipe or options have changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from trainyard.errors import TrainyardError
from trainyard.trainer.model.recipe import Recipe


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
    return {
        "normalize": json.dumps(recipe.normalize),
        "optimizer": f"{type(optimizer).__name__} {json.dumps(groups, default=float)}",
    }


def check_resumable(
    uri: str, loop: Mapping[str, Any], recipe: Mapping[str, str], workers: int, has_schedule: bool, epochs: int
) -> None:
    """Check that the checkpoint at `uri` is one of this training.

    Args:
        uri: The checkpoint.
        loop: Its state of the loop.
        recipe: What `describe_recipe` returned now.
        workers: The size of the group now. The optimizer may depend on it, so it is not compared with that of a group
            of another size.
        has_schedule: Whether the recipe has a schedule now.
        epochs: The option `epochs`.

    Raises:
        TrainyardError: The recipe's normalization, optimizer or schedule is another one.
    """
    before, remove = loop.get("epochs"), f"remove the folder {uri.rpartition('/')[0]} to start from the beginning."
    for name, now in recipe.items():
        then = loop.get("recipe", {}).get(name, now)
        if then != now and (name != "optimizer" or loop["workers"] == workers):
            raise TrainyardError(
                f"the recipe's {name} is {now}, but was {then} when the checkpoint {uri} was saved. Use the recipe as "
                f"it was, or {remove}"
            )
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
