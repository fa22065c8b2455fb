"""What strategies that reduce gradients share: torch DistributedDataParallel with a hook for its buckets."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from trainyard.trainer.strategies.base import OnCommunication
from trainyard.trainer.world import World

Exchange = Callable[[GradBucket], Future[Tensor]]


def parallel(
    network: nn.Module, world: World, exchange: Exchange, on_communication: OnCommunication, bucket_mb: float | None
) -> nn.Module:
    """`network` with the gradients of each bucket replaced by what `exchange` makes of them, and each timed."""
    devices = [world.gpu] if world.device.type == "cuda" else None
    wrapped = DistributedDataParallel(network, device_ids=devices, bucket_cap_mb=bucket_mb)
    wrapped.register_comm_hook(None, _timed(exchange, on_communication))
    return wrapped


def no_sync_until_last(network: nn.Module, last: bool) -> AbstractContextManager[None]:
    """The context of one backward pass: gradients are exchanged in the last one alone."""
    if last or not isinstance(network, DistributedDataParallel):
        return nullcontext()
    return network.no_sync()


def _timed(exchange: Exchange, on_communication: OnCommunication) -> Callable[[None, GradBucket], Future[Tensor]]:
    # DDP looks at these annotations: they must not be strings.
    def hook(_: None, bucket: GradBucket) -> Future[Tensor]:
        wall, start = time.time_ns(), time.perf_counter_ns()
        nothing_else_to_do = bucket.is_last()

        def done(future: Future[Any]) -> Tensor:
            on_communication(wall, time.perf_counter_ns() - start, nothing_else_to_do)
            return future.value()  # type: ignore[no-any-return]

        return exchange(bucket).then(done)

    return hook
