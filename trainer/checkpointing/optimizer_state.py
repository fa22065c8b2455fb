"""The state of an optimizer that has taken no step yet, and whether a checkpoint can restore it."""

from __future__ import annotations

import io
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict
from torch.optim import Optimizer, SparseAdam

from trainyard.errors import TrainyardError, summarize
from trainyard.trainer.model.optimizer import build_optimizer
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.verification.fresh_state import OTHER_SEED, use_random_state


def initialize_state(optimizer: Optimizer) -> None:
    """Create the state of an optimizer that takes sparse gradients only.

    For other optimizers torch does so when it needs their state: it takes a step with gradients of zeros.
    """
    if optimizer.state or not isinstance(optimizer, SparseAdam):
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter, layout=torch.sparse_coo)
    optimizer.step()  # type: ignore[no-untyped-call]
    optimizer.zero_grad()


def check_restorable(recipe: Recipe, network: nn.Module) -> None:
    """Check that a checkpoint can restore the state of the recipe's optimizer, if it is not one of torch.

    Args:
        recipe: The recipe.
        network: The network, which is not changed.

    Raises:
        TrainyardError: It cannot.
    """
    optimizer = build_optimizer(recipe, network)
    name = type(optimizer).__name__
    if type(optimizer).__module__.startswith("torch.optim."):
        return
    before = [parameter.detach().clone() for parameter in network.parameters()]
    try:
        with use_random_state(OTHER_SEED):
            initialize_state(optimizer)
            saved = get_optimizer_state_dict(network, optimizer)
            set_optimizer_state_dict(network, optimizer, saved)
    except Exception as error:
        raise TrainyardError(
            f"optimizer={name}: its state cannot be restored from a checkpoint ({summarize(error)}). Its step() "
            "must work without a closure and with gradients of zeros, and keep tensors and numbers by parameter. "
            "Or use an optimizer of torch.optim."
        ) from error
    finally:
        with torch.no_grad():
            for parameter, value in zip(network.parameters(), before, strict=True):
                parameter.copy_(value)
                parameter.grad = None
    states: Any = saved["state"]
    for parameter_name, state in states.items():
        for key, value in state.items():
            if not _is_loadable(value):
                raise TrainyardError(
                    f"optimizer={name}: the state {key!r} of {parameter_name!r} ({type(value).__name__}) cannot be "
                    "restored from a checkpoint without unpickling code. Keep tensors, numbers, strings, lists and "
                    "dicts in the optimizer's state."
                )


def _is_loadable(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.layout == torch.strided
    stream = io.BytesIO()
    try:
        torch.save(value, stream)
        stream.seek(0)
        torch.load(stream, weights_only=True)
    except Exception:
        return False
    return True
