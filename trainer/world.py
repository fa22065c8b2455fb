"""The world: which rank this process is, of how many, and on what device it computes."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """`gpu` is the device that this rank computes on, where there are any, of those that its process sees.

    `host` is where other ranks reach this one.
    """

    rank: int = 0
    size: int = 1
    gpu: int = 0
    host: str = "127.0.0.1"

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", self.gpu) if torch.cuda.is_available() else torch.device("cpu")

    @property
    def backend(self) -> str:
        return "nccl" if self.device.type == "cuda" else "gloo"

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The element-wise sum of `values` over all ranks."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def gathered(self, mine: Any) -> list[Any]:
        """What each rank has, by rank."""
        found = [mine] * self.size
        if self.size > 1:
            dist.all_gather_object(found, mine)
        return found

    def largest(self, values: Tensor) -> Tensor:
        """The element-wise maximum of `values`, which lie on the CPU, over all ranks."""
        if self.size > 1:
            there = values.to(self.device)
            dist.all_reduce(there, dist.ReduceOp.MAX)
            return there.cpu()
        return values


@contextmanager
def joined(world: World | None) -> Iterator[World]:
    """`world` as it is; else that of `torchrun`, which started this process; else one rank alone."""
    if world or "RANK" not in os.environ:
        yield world or World()
        return
    size = int(os.environ["WORLD_SIZE"])
    gpu = gpu_of((), int(os.environ["LOCAL_RANK"]), torch.cuda.device_count())
    host = os.environ["MASTER_ADDR"] if int(os.environ["GROUP_WORLD_SIZE"]) == 1 else socket.gethostname()
    found = World(int(os.environ["RANK"]), size, gpu, host)
    if found.device.type == "cuda":
        torch.cuda.set_device(found.device)
    dist.init_process_group(found.backend)
    try:
        yield found
    finally:
        dist.destroy_process_group()


def gpu_of(assigned: Sequence[str], neighbour: int, visible: int) -> int:
    """Which of `visible` GPUs a rank computes on.

    The first that Spark assigned to its task: a container that YARN isolates sees its own GPUs alone, and
    counts them from 0, however many other ranks its host has. Without an assignment (labels, whole nodes,
    local masters) the ranks of a host, of which this is the `neighbour`-th, take turns.
    """
    if assigned:
        return int(assigned[0])
    return neighbour % visible if visible else 0
