"""Parameters averaged every few steps, as in DL4J's ParameterAveragingTrainingMaster."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import chain

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainyard.schemas.specs.strategies import Averaging as Options
from trainyard.trainer.strategies import local
from trainyard.trainer.strategies.base import OnCommunication, Strategy


class Averaging(Strategy[Options]):
    """With frequency 1 and plain SGD the ranks compute what one machine would: the mean of steps is the step
    of the mean gradient."""

    _taken = 0
    _apart = False

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        local.begin_alike(network, self.world)
        self._network, self._on_communication = network, on_communication
        return network

    def wrap_optimizer(self, optimizer: Optimizer, parts: int) -> Optimizer:
        self._optimizer = optimizer
        return optimizer

    def after_step(self) -> None:
        self._taken += 1
        self._apart = self.world.size > 1
        if self._taken <= self.options.warmup or self._taken % self.options.frequency == 0:
            self.synchronize()

    def synchronize(self) -> None:
        if not self._apart:
            return
        wall, start = time.time_ns(), time.perf_counter_ns()
        tensors = chain(self._network.parameters(), local.floating_buffers(self._network))
        if self.options.optimizer_state == "average":
            tensors = chain(tensors, local.optimizer_tensors(self._optimizer))
        else:
            self._optimizer.state.clear()
        self.bytes_sent += local.average(tensors, self.world)
        self._apart = False
        self._on_communication(wall, time.perf_counter_ns() - start, True)

    @property
    def in_sync(self) -> bool:
        return not self._apart

    def state(self) -> dict[str, Tensor]:
        return {"taken": torch.tensor(self._taken)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        self._taken = int(state["taken"])
