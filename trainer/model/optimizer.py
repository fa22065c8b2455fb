"""Build the optimizer and the learning rate schedule of a recipe."""

from __future__ import annotations

import inspect

from torch import nn
from torch.optim import LBFGS, SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from trainyard.errors import TrainyardError
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.model.sparse import refuse_sparse_gradients

MAX_VALUES = 3
"""How many values of a setting a description has."""


def build_optimizer(recipe: Recipe, model: nn.Module) -> Optimizer:
    """Return the optimizer of the parameters of `model` that are trained.

    Raises:
        TrainyardError: No parameter is trained, the optimizer takes no single step, or its state would be sparse, which
            checkpoints do not save.
    """
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trained:
        raise TrainyardError("the model has no parameters to train: all are frozen, or there are none. Check freeze=.")
    optimizer = recipe.build_optimizer(trained)
    if isinstance(optimizer, LBFGS):
        raise TrainyardError(
            "optimizer=LBFGS computes the loss several times in a step, which the loop does not; use another optimizer."
        )
    if isinstance(optimizer, SGD) and any(group["momentum"] for group in optimizer.param_groups):
        refuse_sparse_gradients(model, "optimizer=SGD(momentum=...)")
    return optimizer


def describe_optimizer(optimizer: Optimizer) -> str:
    """Return the class of an optimizer, its learning rate, and what differs from the defaults: `SGD(lr=0.1)`.

    Of a setting with different values for groups of parameters, the first values are named. An optimizer that is not
    torch's may have nothing but groups.
    """
    own, parameters = getattr(optimizer, "defaults", {}), inspect.signature(type(optimizer)).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items() if name in own}
    settings = []
    for name in dict.fromkeys(("lr", *defaults)):
        groups = [group for group in optimizer.param_groups if name in group]
        values = list(dict.fromkeys(str(group.get(f"initial_{name}", group[name])) for group in groups))
        if values and (name == "lr" or values != [str(defaults[name])]):
            more = [f"{len(values) - MAX_VALUES} others"] if len(values) > MAX_VALUES else []
            settings.append(f"{name}={' and '.join([*values[:MAX_VALUES], *more])}")
    return f"{type(optimizer).__name__}({', '.join(settings)})"


def freeze_untrained(optimizer: Optimizer, model: nn.Module) -> list[str]:
    """Freeze the parameters of a recipe's `model` that are in no group of its optimizer, and return a warning of them.

    Nothing would remove their gradients, which would add up, be clipped with the others and be sent to other workers.

    Raises:
        TrainyardError: The optimizer has none of the parameters.
    """
    in_groups = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    required = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    untrained = [name for name, parameter in required.items() if id(parameter) not in in_groups]
    if not untrained:
        return []
    if len(untrained) == len(required):
        raise TrainyardError(
            "the optimizer has none of the parameters of the model that require a gradient, so that nothing would be "
            "trained; use the parameters that optimizer= is called with."
        )
    for name in untrained:
        required[name].requires_grad_(False)
    count = len(required) - len(untrained)
    return [
        f"the optimizer has {count} of the {len(required)} parameters that require a gradient; the others, such as "
        f"{untrained[0]!r}, are not trained, as if freeze= named them. Add them to the optimizer, or name them in "
        "freeze=."
    ]


def build_schedule(recipe: Recipe, optimizer: Optimizer, steps: int) -> LRScheduler | None:
    """Return the learning rate schedule, None for a recipe without one.

    Args:
        recipe: The recipe.
        optimizer: The optimizer that the recipe's function gets.
        steps: The number of the scheduler's steps in the whole training.

    Raises:
        TrainyardError: The schedule depends on a metric.
    """
    schedule = recipe.schedule(optimizer, steps) if recipe.schedule else None
    if isinstance(schedule, ReduceLROnPlateau):
        raise TrainyardError(
            "schedule=ReduceLROnPlateau depends on a metric, which a step of a schedule does not get; use one that "
            "depends on the number of steps, such as CosineAnnealingLR."
        )
    return schedule
