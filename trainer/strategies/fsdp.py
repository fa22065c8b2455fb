"""Everything sharded over the ranks: torch's fully_shard (FSDP2)."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch import nn
from torch.distributed.fsdp import fully_shard

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.strategies import FSDP as Options  # noqa: N811
from trainyard.trainer.strategies import local
from trainyard.trainer.strategies.base import OnCommunication, Strategy


class FSDP(Strategy[Options]):
    sharded = True

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        local.begin_alike(network, self.world)
        if self.world.size == 1:
            return network
        total = sum(p.nbytes for p in network.parameters())
        blocks = _blocks(network, self.options.wrap)
        inside = sum(p.nbytes for p in {p for block in blocks for p in block.parameters()})
        # The outermost parameters stay gathered between the forward and the backward pass.
        self._gathered, self._reduced = total + inside, total
        for module in [*blocks, network]:
            fully_shard(module)
        return network

    def micro_batch(self, network: nn.Module, last: bool) -> AbstractContextManager[None]:
        if self.world.size > 1:
            network.set_requires_gradient_sync(last)  # type: ignore[operator]
            sent = self._gathered + (self._reduced if last else 0)
            self.bytes_sent += sent * (self.world.size - 1) // self.world.size
        return nullcontext()


def _blocks(network: nn.Module, wrap: tuple[str, ...]) -> list[nn.Module]:
    """The modules that are gathered one at a time, inner ones first."""
    if not wrap:
        holders = (m for m in network.modules() if isinstance(m, nn.ModuleList | nn.Sequential))
        chosen = {child for holder in holders for child in holder if any(True for _ in child.parameters())}
        return [module for module in reversed(list(network.modules())) if module in chosen]
    classes = {type(module).__name__ for module in network.modules()}
    if unknown := sorted(set(wrap) - classes):
        raise TrainyardError(
            f"strategy fsdp: wrap={list(wrap)} names {', '.join(unknown)}, and the model has no module of that class. "
            f"It has {', '.join(sorted(classes))}."
        )
    return [module for module in reversed(list(network.modules())) if type(module).__name__ in wrap]
