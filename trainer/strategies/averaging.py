"""Average parameters every few steps, as DL4J's ParameterAveragingTrainingMaster does."""

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
    """Independent steps of each worker, and averaging in between.

    With frequency 1 and plain SGD the result is that of a single worker: the mean of the steps is the step of the mean
    gradient.
    """

    _steps = 0
    _diverged = False
    _has_whole_state = False

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        """Copy the weights of rank 0 to all workers."""
        local.broadcast_weights(network, self.world)
        self._network, self._on_communication = network, on_communication
        return network

    def wrap_optimizer(self, optimizer: Optimizer, micro_batches: int) -> Optimizer:
        """Return the optimizer, whose state is averaged too."""
        self._optimizer = optimizer
        return optimizer

    def after_step(self) -> None:
        """Average, if this is the step to do so."""
        self._steps += 1
        self._diverged = self.world.size > 1
        if self._steps <= self.options.warmup or self._steps % self.options.frequency == 0:
            self.synchronize()

    def synchronize(self) -> None:
        """Average parameters, floating-point buffers and the optimizer's state."""
        if not self._diverged:
            return
        wall, start = time.time_ns(), time.perf_counter_ns()
        tensors = chain(self._network.parameters(), local.get_floating_buffers(self._network))
        if self.options.optimizer_state == "average":
            self._has_whole_state = self._has_whole_state or local.share_optimizer_state(self._optimizer, self.world)
            local.share_counters(self._optimizer, self.world)
            tensors = chain(tensors, local.get_optimizer_tensors(self._optimizer))
        else:
            self._optimizer.state.clear()
        self.bytes_sent += local.average(tensors, self.world)
        self._diverged = False
        self._on_communication(wall, time.perf_counter_ns() - start, True)

    @property
    def in_sync(self) -> bool:
        """Whether all workers have the same weights now."""
        return not self._diverged

    def state(self) -> dict[str, Tensor]:
        """Return the number of steps."""
        return {"taken": torch.tensor(self._steps)}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore the number of steps."""
        self._steps = int(state["taken"])
