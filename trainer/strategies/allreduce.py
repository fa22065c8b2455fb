"""Average gradients over all workers at every step (DDP), optionally compressed by torch's own hooks."""

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
from torch.nn.parallel import DistributedDataParallel

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.strategies import Allreduce as Options
from trainyard.trainer.model.sparse import refuse_sparse_gradients
from trainyard.trainer.strategies import ddp
from trainyard.trainer.strategies.base import (
    OnCommunication,
    Strategy,
    broadcast_buffers,
    count_bytes,
    refuse_several_types,
    ring_allreduce,
)

HOOKS = {None: allreduce_hook, "fp16": fp16_compress_hook, "bf16": bf16_compress_hook}
STEPS_UNTIL_BUCKETS_ARE_FINAL = 2
"""DDP rebuilds its buckets after the first step; the state of PowerSGD matches them from the second step on."""


class Allreduce(Strategy[Options]):
    """DDP, which communicates gradients while the backward pass computes others."""

    _ddp: DistributedDataParallel | None = None
    _powersgd: PowerSGDState | None = None
    _steps_before = 0

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        """Return the network in DDP.

        Raises:
            TrainyardError: Parameters are of several types, or one is a single number without a dimension, which
                torch's PowerSGD cannot process, or gradients are sparse, which neither compression nor NCCL can.
        """
        self._network = network
        if self.world.size == 1:
            return network
        if self.options.compression:
            refuse_sparse_gradients(network, f"strategy='allreduce' with compression={self.options.compression!r}")
        if self.world.backend == "nccl":
            refuse_sparse_gradients(network, "strategy='allreduce' on GPUs")
        if self.options.compression != "powersgd":
            self._ddp = ddp.wrap(
                network, self.world, self._reduce, on_communication, self.options.bucket_mb,
                self.options.find_unused_parameters,
            )  # fmt: skip
            return self._ddp
        refuse_several_types(network.parameters(), "compression='powersgd'")
        if single := [name for name, parameter in network.named_parameters() if not parameter.ndim]:
            raise TrainyardError(
                f"compression='powersgd' cannot process the parameter {single[0]!r}, which has no dimension; give it "
                "one, torch.ones(1) instead of torch.tensor(1.0), or choose another compression."
            )
        rank, start = self.options.powersgd_rank, self.options.powersgd_start
        self._powersgd = PowerSGDState(dist.group.WORLD, rank, start)
        # One bucket: with a second one, the chained collectives of this hook abort a process on gloo.
        bucket_mb = sum(p.nbytes for p in network.parameters()) / 2**20 + 1
        self._ddp = ddp.wrap(network, self.world, self._reduce_low_rank, on_communication, bucket_mb)
        return self._ddp

    def micro_batch(self, last: bool) -> AbstractContextManager[None]:
        """Communicate gradients in the last micro-batch only."""
        return ddp.sync_if_last(self._ddp, last)

    def synchronize(self) -> None:
        """Copy buffers from rank 0 to all workers, so that they validate the model that is saved."""
        broadcast_buffers(self._network, self.world)

    def find_warnings(self, steps: int) -> list[str]:
        """Return a warning if the training ends before PowerSGD starts."""
        start = self.options.powersgd_start
        if self._powersgd is None or start < steps:
            return []
        return [
            f"compression='powersgd' begins after powersgd_start={start} steps, and this training has {steps}: nothing "
            "is compressed. Write a smaller powersgd_start."
        ]

    def state(self) -> dict[str, Tensor]:
        """Return the number of steps, which PowerSGD starts after."""
        return {"steps": torch.tensor(self._steps_before + self._powersgd.iter)} if self._powersgd else {}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore the number of steps."""
        if self._powersgd and state:
            self._steps_before = int(state["steps"])
            self._powersgd.start_powerSGD_iter = max(
                STEPS_UNTIL_BUCKETS_ARE_FINAL, self.options.powersgd_start - self._steps_before
            )

    def rank_state(self) -> dict[str, Tensor]:
        """Return the error feedback of PowerSGD, and its low-rank factors."""
        powersgd = self._powersgd
        if powersgd is None or not powersgd.error_dict:
            return {}
        return {
            "error": powersgd.error_dict[0],
            "p": powersgd.p_memory_dict[0],
            "q": powersgd.q_memory_dict[0],
        }

    def restore_rank(self, state: Mapping[str, Tensor]) -> None:
        """Restore the error feedback, and the low-rank factors, which are the same on all workers."""
        if self._powersgd is None or not state:
            return
        device = self.world.device
        self._powersgd.error_dict[0] = state["error"].to(device)
        self._powersgd.p_memory_dict[0] = state["p"].to(device)
        self._powersgd.q_memory_dict[0] = state["q"].to(device)

    def _reduce(self, bucket: GradBucket) -> Future[Tensor]:
        payload = count_bytes(bucket.buffer()) // (2 if self.options.compression else 1)
        self.bytes_sent += ring_allreduce(payload, self.world.size)
        return HOOKS[self.options.compression](dist.group.WORLD, bucket)  # type: ignore[arg-type]

    def _reduce_low_rank(self, bucket: GradBucket) -> Future[Tensor]:
        state = self._powersgd
        assert state
        compresses, before = state.iter >= state.start_powerSGD_iter, state.total_numel_after_compression
        future = powerSGD_hook(state, bucket)
        elements = state.total_numel_after_compression - before if compresses else bucket.buffer().numel()
        self.bytes_sent += ring_allreduce(elements * bucket.buffer().itemsize, self.world.size)
        return future
