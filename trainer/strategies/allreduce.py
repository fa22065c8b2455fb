"""Gradients averaged over all ranks at every step: torch DistributedDataParallel."""

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from trainer.strategies.base import Communicated, Strategy


class Allreduce(Strategy):
    def attach(self, network: nn.Module, communicated: Communicated) -> nn.Module:
        if self.world.size == 1:
            return network
        devices = [self.world.gpu] if self.world.device.type == "cuda" else None
        parallel = DistributedDataParallel(network, device_ids=devices)
        parallel.register_comm_hook(communicated, _timed_allreduce)
        return parallel

    def communicating(self, network: nn.Module, last: bool) -> AbstractContextManager[None]:
        if last or not isinstance(network, DistributedDataParallel):
            return nullcontext()
        return network.no_sync()


def _timed_allreduce(communicated: Communicated, bucket: GradBucket) -> Future[Tensor]:
    wall, start = time.time_ns(), time.perf_counter_ns()

    def done(future: Future[Any]) -> Tensor:
        communicated(wall, time.perf_counter_ns() - start)
        return future.value()  # type: ignore[no-any-return]

    return allreduce_hook(dist.distributed_c10d._get_default_group(), bucket).then(done)
