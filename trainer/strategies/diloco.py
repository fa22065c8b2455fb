"""Many steps by each rank alone, then one step of an outer optimizer (DiLoCo, arXiv 2311.08105)."""

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
    """Each rank's inner optimizer keeps a state of its own; the outer one is the same on all ranks."""

    own_optimizer = True
    _taken = 0

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        local.begin_alike(network, self.world)
        self._network, self._on_communication = network, on_communication
        self._inner = list(network.parameters())
        self._outer = [nn.Parameter(p.detach().clone()) for p in self._inner]
        momentum = self.options.outer_momentum
        self._optimizer = torch.optim.SGD(
            self._outer, self.options.outer_learning_rate, momentum, nesterov=momentum > 0
        )
        return network

    def after_step(self) -> None:
        self._taken += 1
        if self._taken == self.options.inner_steps:
            self.synchronize()

    def synchronize(self) -> None:
        """The outer step: its gradient is the mean over ranks of what the inner steps took from the weights."""
        if self._taken == 0:
            return
        wall, start = time.time_ns(), time.perf_counter_ns()
        with torch.no_grad():
            changes = [outer - inner for outer, inner in zip(self._outer, self._inner, strict=True)]
            self.bytes_sent += local.average(chain(changes, local.floating_buffers(self._network)), self.world)
            for outer, change in zip(self._outer, changes, strict=True):
                outer.grad = change
            self._optimizer.step()
            for outer, inner in zip(self._outer, self._inner, strict=True):
                inner.copy_(outer)
        self._taken = 0
        self._on_communication(wall, time.perf_counter_ns() - start, True)

    @property
    def in_sync(self) -> bool:
        return self._taken == 0

    def state(self) -> dict[str, Tensor]:
        momenta = (self._optimizer.state.get(p, {}).get("momentum_buffer") for p in self._outer)
        return {f"momentum.{n}": momentum for n, momentum in enumerate(momenta) if momentum is not None}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """The outer weights are the ranks' own: a checkpoint is taken only when they agree."""
        with torch.no_grad():
            for number, (outer, inner) in enumerate(zip(self._outer, self._inner, strict=True)):
                outer.copy_(inner)
                if (momentum := state.get(f"momentum.{number}")) is not None:
                    self._optimizer.state[outer]["momentum_buffer"] = momentum.to(outer.device)
