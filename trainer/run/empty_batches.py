"""Take part in the communication of a step without rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


@contextmanager
def leave_no_trace(network: nn.Module) -> Iterator[None]:
    """Make the gradients of the passes in the body zero, and leave buffers as they were.

    A loss that is multiplied by 0 is not enough: 0 times NaN or infinity is NaN. Gradients are replaced before a
    strategy gets them, where they are added to a parameter. Sharded parameters are gathered in forward passes only.
    `SyncBatchNorm` gets no rows, and takes part in both passes with a count of 0; its output is zeros.
    """
    before = [
        (module, name, buffer, buffer.clone())
        for module in network.modules() for name, buffer in module.named_buffers(recurse=False)
    ]  # fmt: skip
    hooked: set[int] = set()
    handles = []

    def replace_gradients(module: nn.Module, _: object = None) -> None:
        for parameter in module.parameters():
            if parameter.requires_grad and not isinstance(parameter, DTensor) and id(parameter) not in hooked:
                hooked.add(id(parameter))
                handles.append(parameter.register_hook(torch.zeros_like))  # type: ignore[no-untyped-call]

    waiting: list[Tensor] = []

    def leave_out_rows(_: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        waiting.append(inputs[0])
        return inputs[0][:0]

    def restore_rows(_: nn.Module, __: tuple[Tensor], output: Tensor) -> Tensor:
        return torch.zeros_like(waiting.pop()) + output.sum()  # the backward pass reaches the module

    replace_gradients(network)
    for module in network.modules():
        if isinstance(module, nn.SyncBatchNorm) and module.training:
            handles += [
                module.register_forward_pre_hook(leave_out_rows), module.register_forward_hook(restore_rows),
            ]  # fmt: skip
    handles += [module.register_forward_pre_hook(replace_gradients) for module in network.modules()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        with torch.no_grad():
            for module, name, buffer, values in before:
                setattr(module, name, buffer.copy_(values))
