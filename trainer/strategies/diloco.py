"""DiLoCo: many steps of each worker alone, then one step of an outer optimizer (arXiv 2311.08105)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import chain

import torch
from torch import Tensor, nn

from trainyard.schemas.specs.strategies import DiLoCo as Options
from trainyard.trainer.strategies import local
from trainyard.trainer.strategies.base import OnCommunication, Strategy


class DiLoCo(Strategy[Options]):
    """The inner optimizer of each worker has a state of its own; the outer one is the same on all workers."""

    own_optimizer = True
    _inner_steps = 0

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        """Copy the weights of rank 0 to all workers, and build the outer optimizer."""
        local.broadcast_weights(network, self.world)
        self._network, self._on_communication = network, on_communication
        self._inner = [p for p in network.parameters() if p.is_floating_point() or p.is_complex()]
        self._outer = [nn.Parameter(p.detach().clone()) for p in self._inner]
        momentum = self.options.outer_momentum
        self._optimizer = torch.optim.SGD(
            self._outer, self.options.outer_learning_rate, momentum, nesterov=momentum > 0
        )
        return network

    def after_step(self) -> None:
        """Take the outer step, if it is due."""
        self._inner_steps += 1
        if self._inner_steps == self.options.inner_steps:
            self.synchronize()

    def synchronize(self) -> None:
        """Take the outer step: its gradient is the mean over workers of the change by the inner steps, negated."""
        if self._inner_steps == 0:
            return
        wall, start = time.time_ns(), time.perf_counter_ns()
        with torch.no_grad():
            changes = [outer - inner for outer, inner in zip(self._outer, self._inner, strict=True)]
            buffers = local.get_floating_buffers(self._network)
            self.bytes_sent += local.average(chain(changes, buffers), self.world)
            for outer, change in zip(self._outer, changes, strict=True):
                outer.grad = change
            self._optimizer.step()
            for outer, inner in zip(self._outer, self._inner, strict=True):
                inner.copy_(outer)
        self._inner_steps = 0
        if self.world.size > 1:
            self._on_communication(wall, time.perf_counter_ns() - start, True)

    @property
    def in_sync(self) -> bool:
        """Whether all workers have the same weights now."""
        return self._inner_steps == 0

    def state(self) -> dict[str, Tensor]:
        """Return the momentum of the outer optimizer."""
        momenta = (self._optimizer.state.get(p, {}).get("momentum_buffer") for p in self._outer)
        return {f"momentum.{n}": momentum for n, momentum in enumerate(momenta) if momentum is not None}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore the momentum. The outer weights are the model's: checkpoints are saved right after outer steps."""
        with torch.no_grad():
            for number, (outer, inner) in enumerate(zip(self._outer, self._inner, strict=True)):
                outer.copy_(inner)
                if (momentum := state.get(f"momentum.{number}")) is not None:
                    self._optimizer.state[outer]["momentum_buffer"] = momentum.to(outer.device)
