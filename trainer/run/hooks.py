"""Hooks of torch that are in place while a loop runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from trainyard.errors import TrainyardError


@contextmanager
def undo_buffers() -> Iterator[None]:
    """Restore the buffers of a module after each forward pass in the body: the passes of a batch without rows.

    What else changes a buffer, such as a count of steps or an average of weights, stays.
    """
    kept: list[list[tuple[Tensor, Tensor]]] = []

    def keep(module: nn.Module, _: object) -> None:
        if not torch.compiler.is_compiling():
            kept.append([] if kept else [(buffer, buffer.clone()) for buffer in module.buffers()])

    def restore(_: nn.Module, __: object, ___: object) -> None:
        if not torch.compiler.is_compiling():
            for buffer, values in kept.pop():
                buffer.data.copy_(values)  # a backward pass that needs the buffer is not refused

    handles = [register_module_forward_pre_hook(keep), register_module_forward_hook(restore, always_call=True)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def refuse_optimizers(is_tracked: Callable[[Optimizer], bool], is_trained: Callable[[Tensor], bool]) -> Iterator[None]:
    """Raise TrainyardError in the body at a step of an optimizer that is not tracked.

    Args:
        is_tracked: Whether an optimizer is tracked.
        is_trained: Whether a tensor is a parameter of a network of the loop.
    """

    def check(optimizer: Optimizer, *_: Any) -> None:
        if not is_tracked(optimizer) and any(
            is_trained(parameter) for group in optimizer.param_groups for parameter in group["params"]
        ):
            raise TrainyardError(
                f"an optimizer of class {type(optimizer).__name__} takes a step, but is not tracked, so that a run "
                "that resumes would lose its state. Name it in run.track(), before run.steps()."
            )

    handle = register_optimizer_step_pre_hook(check)
    try:
        yield
    finally:
        handle.remove()
