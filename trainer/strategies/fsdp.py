"""Shard parameters, gradients and optimizer state over the workers: torch's fully_shard (FSDP2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.strategies import FSDP as Options  # noqa: N811
from trainyard.trainer.model.sparse import refuse_sparse_gradients
from trainyard.trainer.strategies.base import OnCommunication, Strategy, broadcast_buffers, refuse_several_types
from trainyard.trainer.world import World


class FSDP(Strategy[Options]):
    """FSDP2, which gathers the parameters of one block at a time.

    Args:
        options: Its options.
        world: The workers.
        is_of_loop: Whether the network is one of those of a loop: of the classes of `wrap` it may have none, and all of
            its parameters are shards outside of a forward and backward pass, also between both.

    Raises:
        TrainyardError: Two workers share a GPU, for which torch's gloo has no collectives of shards.
    """

    sharded = True

    def __init__(self, options: Options, world: World, is_of_loop: bool = False) -> None:
        super().__init__(options, world)
        self._is_of_loop = is_of_loop
        if world.shares_gpu:
            raise TrainyardError(
                "strategy 'fsdp' needs a GPU for each worker, but some workers share one. Write strategy='allreduce', "
                "or a smaller workers=, or request GPUs with gpus_per_worker=1."
            )

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        """Move the network to the device block by block, with the weights of rank 0, and shard each block there.

        A device has room for the shards and one block at a time.

        Raises:
            TrainyardError: `wrap` names a class that the model does not have, gradients are sparse, or a block has
                parameters of several types.
        """
        self._network = network
        if self.world.size == 1:
            return network.to(self.world.device)
        refuse_sparse_gradients(network, "strategy='fsdp'")
        total = sum(p.nbytes for p in network.parameters())
        if not self._is_of_loop:
            check_wrap(self.options.wrap, {type(module).__name__ for module in network.modules()})
        blocks = _find_blocks(network, self.options.wrap)
        in_blocks = sum(p.nbytes for p in {p for block in blocks for p in block.parameters()})
        # Of a recipe, parameters outside of blocks stay gathered between the forward and the backward pass.
        self._gathered, self._reduced = 2 * total if self._is_of_loop else total + in_blocks, total
        mesh = init_device_mesh(self.world.device.type, (self.world.size,))
        for module in [*blocks, network]:
            own = (p for p in module.parameters() if not isinstance(p, DTensor))
            refuse_several_types(own, "a block of strategy='fsdp'")
            _place(module, self.world)
            fully_shard(module, mesh=mesh, reshard_after_forward=True if self._is_of_loop else None)
        return network

    def micro_batch(self, last: bool) -> AbstractContextManager[None]:
        """Reduce gradients in the last micro-batch only."""
        if self.world.size > 1:
            self._network.set_requires_gradient_sync(last)  # type: ignore[operator]
            sent = self._gathered + (self._reduced if last else 0)
            self.bytes_sent += sent * (self.world.size - 1) // self.world.size
        return nullcontext()

    def synchronize(self) -> None:
        """Copy buffers from rank 0 to all workers, so that they validate the model that is saved."""
        broadcast_buffers(self._network, self.world)


def check_wrap(wrap: Collection[str], classes: Collection[str]) -> None:
    """Check that the modules of a model have the classes of `wrap`. Raises TrainyardError if they do not."""
    if unknown := sorted(set(wrap) - set(classes)):
        raise TrainyardError(
            f"strategy fsdp: wrap={list(wrap)} names {', '.join(unknown)}, but the model has no module of that class. "
            f"Its classes are {', '.join(sorted(classes))}."
        )


def _place(module: nn.Module, world: World) -> None:
    """Move what is not sharded yet to the device, with the values of rank 0."""

    def place(tensor: Tensor) -> Tensor:
        if isinstance(tensor, DTensor):
            return tensor
        placed = tensor.detach().to(world.device)
        dist.broadcast(placed, 0)
        return placed

    module._apply(place)  # type: ignore[no-untyped-call]


def _shares_parameters(module: nn.Module, network: nn.Module) -> bool:
    """Return whether a parameter of `module` is also one of a module of `network` outside of it."""
    inside = Counter(map(id, _list_parameters(module)))
    return any(
        count > inside[key] for key, count in Counter(map(id, _list_parameters(network))).items() if key in inside
    )


def _list_parameters(module: nn.Module) -> list[nn.Parameter]:
    """Return the parameters of `module`, once for each name."""
    return [parameter for _, parameter in module.named_parameters(remove_duplicate=False)]


def _find_blocks(network: nn.Module, wrap: tuple[str, ...]) -> list[nn.Module]:
    """Return the modules that are gathered one at a time, inner ones first.

    A module that shares a parameter with another one, as tied weights do, is left to the rest of the network: torch
    allows a parameter in one group only.
    """
    modules = [module for module in reversed(list(network.modules())) if not _shares_parameters(module, network)]
    if not wrap:
        containers = (m for m in network.modules() if isinstance(m, nn.ModuleList | nn.Sequential))
        children = {child for container in containers for child in container if any(True for _ in child.parameters())}
        return [module for module in modules if module in children]
    return [module for module in modules if type(module).__name__ in wrap and module is not network]
