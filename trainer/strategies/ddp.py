"""Wrap a network in torch's DistributedDataParallel, with a communication hook for its gradient buckets."""

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

Reduce = Callable[[GradBucket], Future[Tensor]]


def wrap(
    network: nn.Module,
    world: World,
    reduce: Reduce,
    on_communication: OnCommunication,
    bucket_mb: float | None,
    find_unused_parameters: bool = False,
) -> DistributedDataParallel:
    """Return `network` in DDP.

    Buffers of its own that are not saved, those of the normalization, are constants that all workers have: DDP would
    broadcast them before each forward pass.

    Args:
        network: The network.
        world: The workers.
        reduce: Returns the gradients of a bucket, reduced over all workers.
        on_communication: Called after the communication of each bucket.
        bucket_mb: The size of a bucket in MiB; DDP's default if None.
        find_unused_parameters: Whether steps may leave parameters without a gradient.
    """
    constants = dict(network.named_buffers(recurse=False)).keys() - network.state_dict().keys()
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(network, constants)  # type: ignore[no-untyped-call]
    devices = [world.gpu] if world.device.type == "cuda" else None
    wrapped = DistributedDataParallel(
        network, device_ids=devices, bucket_cap_mb=bucket_mb, find_unused_parameters=find_unused_parameters
    )
    wrapped.register_comm_hook(None, _build_hook(reduce, on_communication))
    return wrapped


def sync_if_last(network: DistributedDataParallel | None, last: bool) -> AbstractContextManager[None]:
    """Return the context of a backward pass, which communicates gradients only if it is the `last` one.

    Args:
        network: The network in DDP, and not what torch.compile returns for it; None if there is one worker.
        last: Whether the step of the optimizer follows.
    """
    return nullcontext() if last or network is None else network.no_sync()


def _build_hook(reduce: Reduce, on_communication: OnCommunication) -> Callable[[None, GradBucket], Future[Tensor]]:
    # DDP inspects these annotations: they must not be strings.
    def hook(_: None, bucket: GradBucket) -> Future[Tensor]:
        wall, start = time.time_ns(), time.perf_counter_ns()
        is_last = bucket.is_last()  # the backward pass has nothing else to compute

        def finish(future: Future[Any]) -> Tensor:
            on_communication(wall, time.perf_counter_ns() - start, is_last)
            return future.value()  # type: ignore[no-any-return]

        return reduce(bucket).then(finish)

    return hook
