"""Gradients averaged over all ranks at every step, compressed by torch's own hooks if that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future

from trainyard.schemas.specs.strategies import Allreduce as Options
from trainyard.trainer.strategies import ddp
from trainyard.trainer.strategies.base import OnCommunication, Strategy, ring_allreduce

WHOLE = {None: allreduce_hook, "fp16": fp16_compress_hook, "bf16": bf16_compress_hook}
REBUILT = 2
"""DDP orders its buckets anew after the first step; what PowerSGD remembers of them fits from the second on."""


class Allreduce(Strategy[Options]):
    _powersgd: PowerSGDState | None = None
    _steps_before = 0

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        if self.world.size == 1:
            return network
        if self.options.compression != "powersgd":
            return ddp.parallel(network, self.world, self._whole, on_communication, self.options.bucket_mb)
        rank, start = self.options.powersgd_rank, self.options.powersgd_start
        self._powersgd = PowerSGDState(dist.group.WORLD, rank, start)
        # One bucket: with a second one, the chained collectives of this hook abort a process on gloo.
        everything = sum(p.nbytes for p in network.parameters()) / 2**20 + 1
        return ddp.parallel(network, self.world, self._low_rank, on_communication, everything)

    def micro_batch(self, network: nn.Module, last: bool) -> AbstractContextManager[None]:
        return ddp.no_sync_until_last(network, last)

    def state(self) -> dict[str, Tensor]:
        return {"steps": torch.tensor(self._steps_before + self._powersgd.iter)} if self._powersgd else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        if self._powersgd and state:
            self._steps_before = int(state["steps"])
            self._powersgd.start_powerSGD_iter = max(REBUILT, self.options.powersgd_start - self._steps_before)

    def rank_state(self) -> dict[str, Tensor]:
        held = self._powersgd
        if held is None or not held.error_dict:
            return {}
        return {"error": held.error_dict[0], "p": held.p_memory_dict[0], "q": held.q_memory_dict[0]}

    def restore_ranks(self, states: list[dict[str, Tensor]]) -> None:
        """In a gang of another size each rank owes the mean of what all owed before: as much is made good."""
        if self._powersgd is None or not all(states):
            return
        device = self.world.device
        owed = [state["error"] for state in states]
        mine = owed[self.world.rank] if len(owed) == self.world.size else torch.stack(owed).mean(0)
        self._powersgd.error_dict[0] = mine.to(device)
        self._powersgd.p_memory_dict[0] = states[0]["p"].to(device)
        self._powersgd.q_memory_dict[0] = states[0]["q"].to(device)

    def _whole(self, bucket: GradBucket) -> Future[Tensor]:
        sent = bucket.buffer().nbytes // (2 if self.options.compression else 1)
        self.bytes_sent += ring_allreduce(sent, self.world.size)
        return WHOLE[self.options.compression](dist.group.WORLD, bucket)  # type: ignore[arg-type]

    def _low_rank(self, bucket: GradBucket) -> Future[Tensor]:
        state = self._powersgd
        assert state
        compressing, counted = state.iter >= state.start_powerSGD_iter, state.total_numel_after_compression
        future = powerSGD_hook(state, bucket)
        elements = state.total_numel_after_compression - counted if compressing else bucket.buffer().numel()
        self.bytes_sent += ring_allreduce(elements * bucket.buffer().itemsize, self.world.size)
        return future
