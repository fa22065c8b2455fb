"""Gradients averaged by Horovod's optimizer, in ranks that are there already: no ssh, no horovodrun."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from trainer.strategies.base import Communicated, Strategy, ring_allreduce
from trainer.world import World
from trainyard.contract.errors import TrainyardError
from trainyard.contract.strategies import Horovod as Options


class Horovod(Strategy[Options]):
    def __init__(self, options: Options, world: World) -> None:
        super().__init__(options, world)
        self._hvd = imported()
        self._server = join(world)
        self._hvd.init()

    def attach(self, network: nn.Module, communicated: Communicated) -> nn.Module:
        self._hvd.broadcast_parameters(network.state_dict(), root_rank=0)
        self._network, self._communicated = network, communicated
        return network

    def adopt(self, optimizer: Optimizer, parts: int) -> Optimizer:
        compression = self._hvd.Compression.fp16 if self.options.compression else self._hvd.Compression.none
        self._optimizer = self._hvd.DistributedOptimizer(
            optimizer, self._network.named_parameters(), compression, backward_passes_per_step=parts
        )
        # torch's checkpoints clear gradients by an argument that Horovod's method does not take.
        clear = self._optimizer.zero_grad
        self._optimizer.zero_grad = lambda set_to_none=True: clear()
        return self._optimizer  # type: ignore[no-any-return]

    def reduced(self) -> AbstractContextManager[None]:
        size = sum(p.grad.nbytes for p in self._network.parameters() if p.grad is not None)
        self.bytes_sent += ring_allreduce(size // (2 if self.options.compression else 1), self.world.size)
        wall, start = time.time_ns(), time.perf_counter_ns()
        self._optimizer.synchronize()
        self._communicated(wall, time.perf_counter_ns() - start, True)
        return self._optimizer.skip_synchronize()  # type: ignore[no-any-return]

    def close(self) -> None:
        self._hvd.shutdown()
        if self._server:
            self._server.stop()


def imported() -> Any:
    """Horovod's torch package. Raises TrainyardError where it is not installed."""
    try:
        import horovod.torch
    except ImportError as error:
        raise TrainyardError(
            "strategy='horovod': the Python that the gang runs with has no Horovod built for its torch "
            f"({error}). Install the wheel that `make horovod` builds, or write strategy='allreduce'."
        ) from error
    return horovod.torch


def join(world: World) -> Any:
    """Tell Horovod of the ranks, in the environment that its `init` reads. Returns rank 0's rendezvous server."""
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.http.http_server import RendezvousServer

    hosts = _gathered(world)
    names = list(dict.fromkeys(hosts))

    def slot(rank: int) -> Any:
        host = hosts[rank]
        local = hosts[:rank].count(host)
        there = [name for name in names if hosts.count(name) > local]
        return SlotInfo(host, rank, local, there.index(host), world.size, hosts.count(host), len(there))

    server, address = None, [""]
    if world.leads:
        server = RendezvousServer(verbose=0)
        address = [f"{world.host}:{server.start()}"]
        server.init([slot(rank) for rank in range(world.size)])
    if world.size > 1:
        dist.broadcast_object_list(address, 0)
    host, _, port = address[0].rpartition(":")
    mine = slot(world.rank)
    os.environ |= {
        "HOROVOD_HOSTNAME": mine.hostname,
        "HOROVOD_RANK": str(mine.rank),
        "HOROVOD_SIZE": str(mine.size),
        "HOROVOD_LOCAL_RANK": str(mine.local_rank),
        "HOROVOD_LOCAL_SIZE": str(mine.local_size),
        "HOROVOD_CROSS_RANK": str(mine.cross_rank),
        "HOROVOD_CROSS_SIZE": str(mine.cross_size),
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": host,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }
    return server


def _gathered(world: World) -> list[str]:
    if world.size == 1:
        return [world.host]
    hosts: list[Any] = [None] * world.size
    dist.all_gather_object(hosts, world.host)
    return hosts
