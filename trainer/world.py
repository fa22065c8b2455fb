"""The processes of a training: the rank of this worker, how many workers there are, and its device."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.constants import default_pg_timeout

from trainyard.trainer import exchange
from trainyard.trainer.membership import Membership

_RENDEZVOUS = (
    "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
)  # fmt: skip
"""The variables of a launcher that name a group of processes, and this one in it."""

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """The place of this process among the workers of a training.

    Attributes:
        rank: The number of this worker, from 0.
        size: How many workers there are.
        gpu: The index of the GPU that this worker uses, among those that its process sees.
        host: The address at which the other workers reach this one.
        shares_gpu: Whether any two workers use the same GPU.
        timeout: The timeout of collectives; None for torch's.
        membership: What the workers recognize each other by; None in a process group that others have created.
    """

    rank: int = 0
    size: int = 1
    gpu: int = 0
    host: str = "127.0.0.1"
    shares_gpu: bool = False
    timeout: timedelta | None = None
    membership: Membership | None = field(default=None, repr=False, compare=False)

    @property
    def device(self) -> torch.device:
        """The device that this worker computes on."""
        return torch.device("cuda", self.gpu) if torch.cuda.is_available() else torch.device("cpu")

    @property
    def backend(self) -> str:
        """The torch.distributed backend for that device: NCCL, which refuses two workers on one GPU, or gloo."""
        return "nccl" if self.device.type == "cuda" and not self.shares_gpu else "gloo"

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which alone writes models, logs and metrics."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Return the element-wise sum of `values` over all workers."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def max(self, values: Tensor) -> Tensor:
        """Return the element-wise maximum of `values`, a tensor on the CPU, over all workers."""
        if self.size > 1:
            on_device = values.to(self.device)
            dist.all_reduce(on_device, dist.ReduceOp.MAX)
            return on_device.cpu()
        return values

    def broadcast(self, values: Sequence[float]) -> list[float]:
        """Return the `values` of rank 0 on all workers."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(tensor, 0)
        return tensor.tolist()

    def gather(self, value: T) -> list[T]:
        """Return the `value` of each worker, by rank; see `exchange` for what it may be."""
        return exchange.all_gather(value) if self.size > 1 else [value]

    def broadcast_value(self, value: T, group: dist.ProcessGroup | None = None) -> T:
        """Return the `value` of rank 0 on all workers; see `exchange` for what it may be.

        Args:
            value: The value; what it is on other workers does not matter.
            group: The process group, the default one if None.
        """
        return exchange.broadcast(value, group) if self.size > 1 else value

    def create_group(self) -> dist.ProcessGroup | None:
        """Create a further process group of all workers, on the CPU; None for a single worker.

        Its timeout is that of the default one, but not shorter than torch's: what it waits for may run beside the
        steps, as the writing of a checkpoint does.
        """
        if self.size == 1:
            return None
        timeout = max(self.timeout, default_pg_timeout) if self.timeout else None
        group = dist.new_group(backend="gloo", timeout=timeout)
        assert isinstance(group, dist.ProcessGroup)  # all workers are members
        if self.membership:
            self.membership.verify(torch.device("cpu"), group)
        return group


@contextmanager
def init_world(world: World | None) -> Iterator[World]:
    """Yield `world`, or that of the script's own process group, or the one that `torchrun` started this process in.

    Under `torchrun` a process group is created here, and destroyed at the end. Without any of them, yield a world of
    one worker.
    """
    if world:
        yield world
    elif dist.is_initialized():
        yield _describe_group()
    elif "RANK" in os.environ:
        with _create_group() as created:
            yield created
    else:
        yield World()


def _describe_group() -> World:
    """Return the world of the default process group, with the GPU that the script has selected."""
    rank, size, visible = dist.get_rank(), dist.get_world_size(), list_gpus()
    gpu = torch.cuda.current_device() if visible else 0
    workers = exchange.all_gather((socket.gethostname(), visible[gpu] if visible else None))
    hosts, gpus = {host for host, _ in workers}, [used for _, used in workers if used]
    host = "127.0.0.1" if len(hosts) == 1 else socket.gethostname()
    return World(rank, size, gpu, host, shares_gpu=len(set(gpus)) < len(gpus))


@contextmanager
def _create_group() -> Iterator[World]:
    store, rank, size = _rendezvous(*map(os.environ.get, _RENDEZVOUS))
    number = store.add(f"trainyard/groups/{rank}", 1)  # keys of an earlier group would be found again
    store = dist.PrefixStore(f"trainyard/{number}", store)  # type: ignore[attr-defined]
    store.set(f"gpus/{rank}", json.dumps(Gpus(socket.gethostname(), [], list_gpus())))
    gpus, shares_gpu = select_gpus([Gpus(*json.loads(store.get(f"gpus/{other}"))) for other in range(size)])
    host = os.environ["MASTER_ADDR"] if int(os.environ["GROUP_WORLD_SIZE"]) == 1 else socket.gethostname()
    world = World(rank, size, gpus[rank], host, shares_gpu)
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
    dist.init_process_group(world.backend, store=store, rank=rank, world_size=size)
    try:
        yield world
    finally:
        dist.destroy_process_group()


@lru_cache(1)
def _rendezvous(*_: str | None) -> tuple[Any, int, int]:
    """Return the store of all groups of these processes, the rank and the number of workers.

    Where rank 0 serves the store, a second one for the next training would get no connection. A process that Spark
    uses again is one of other processes by then, and has other variables.
    """
    return next(dist.rendezvous("env://"))  # type: ignore[attr-defined,no-any-return]


class Gpus(NamedTuple):
    """The GPUs of a worker.

    Attributes:
        host: The host of the worker.
        assigned: Addresses of the GPUs that Spark assigned to its task.
        visible: The ids of the GPUs that its process sees.
    """

    host: str
    assigned: Sequence[str]
    visible: Sequence[str]


def list_gpus() -> list[str]:
    """Return the ids of the GPUs that this process sees and torch can use."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return [str(torch.cuda.get_device_properties(number).uuid) for number in range(count)]


def select_gpus(workers: Sequence[Gpus]) -> tuple[list[int], bool]:
    """Return the index of the GPU that each worker uses, and whether any two use the same one."""
    indices, on_host = [], Counter[str]()
    for worker in workers:
        indices.append(select_gpu(worker.assigned, on_host[worker.host], len(worker.visible)))
        on_host[worker.host] += 1
    used = [worker.visible[index] for worker, index in zip(workers, indices, strict=True) if worker.visible]
    return indices, len(set(used)) < len(used)


def select_gpu(assigned: Sequence[str], local_rank: int, visible: int) -> int:
    """Return the index of the GPU that a worker uses.

    A GPU that Spark assigned to the task is used as it is: a container that YARN isolates sees its own GPUs only, and
    counts them from 0. Without an assignment (node labels, whole nodes, local masters), or where the process sees only
    its own GPU whatever its number, the workers of a host take turns.

    Args:
        assigned: Addresses of the GPUs that Spark assigned to the task of this worker.
        local_rank: The number of this worker among those of its host.
        visible: How many GPUs the process sees.
    """
    if assigned and int(assigned[0]) < visible:
        return int(assigned[0])
    return local_rank % visible if visible else 0
