"""Gradients averaged by Horovod's optimizer, in ranks that are there already: no ssh, no horovodrun."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.strategies import Horovod as Options
from trainyard.trainer.strategies.base import OnCommunication, Strategy, ring_allreduce
from trainyard.trainer.world import World


class Horovod(Strategy[Options]):
    def __init__(self, options: Options, world: World) -> None:
        super().__init__(options, world)
        self._hvd = imported()
        self._meeting = ExitStack()
        self._meeting.enter_context(met(world))
        self._hvd.init()

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        self._hvd.broadcast_parameters(network.state_dict(), root_rank=0)
        self._network, self._on_communication = network, on_communication
        return network

    def wrap_optimizer(self, optimizer: Optimizer, parts: int) -> Optimizer:
        compression = self._hvd.Compression.fp16 if self.options.compression else self._hvd.Compression.none
        self._optimizer = self._hvd.DistributedOptimizer(
            optimizer, self._network.named_parameters(), compression, backward_passes_per_step=parts
        )
        # torch's checkpoints clear gradients by an argument that Horovod's method does not take.
        clear = self._optimizer.zero_grad
        self._optimizer.zero_grad = lambda set_to_none=True: clear()
        return self._optimizer  # type: ignore[no-any-return]

    def optimizer_step(self) -> AbstractContextManager[None]:
        size = sum(p.grad.nbytes for p in self._network.parameters() if p.grad is not None)
        self.bytes_sent += ring_allreduce(size // (2 if self.options.compression else 1), self.world.size)
        wall, start = time.time_ns(), time.perf_counter_ns()
        self._optimizer.synchronize()
        self._on_communication(wall, time.perf_counter_ns() - start, True)
        return self._optimizer.skip_synchronize()  # type: ignore[no-any-return]

    def close(self) -> None:
        self._hvd.shutdown()
        self._meeting.close()


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


@contextmanager
def met(world: World) -> Iterator[None]:
    """Tells Horovod of the ranks, in the environment that its `init` reads; rank 0 serves the rendezvous meanwhile."""
    hosts = world.gather(world.host)
    server, address = None, [""]
    if world.is_main:
        server, port = serve(hosts)
        address = [f"{world.host}:{port}"]
    if world.size > 1:
        dist.broadcast_object_list(address, 0)
    variables = environment(hosts, world.rank, address[0])
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ |= variables
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ |= before
        if server:
            server.stop()


def environment(hosts: Sequence[str], rank: int, address: str) -> dict[str, str]:
    """What Horovod's `init` reads to be `rank` of a gang that meets at `address` ("host:port").

    `hosts` is where each rank runs.
    """
    host, _, port = address.rpartition(":")
    return {f"HOROVOD_{name.upper()}": str(value) for name, value in _slot(hosts, rank).items()} | {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": host,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }


def serve(hosts: Sequence[str]) -> tuple[Any, int]:
    """The server by which the ranks on `hosts` meet, running, and its port."""
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer(verbose=0)
    port = server.start()
    server.init([SlotInfo(**_slot(hosts, rank)) for rank in range(len(hosts))])
    return server, port


def _slot(hosts: Sequence[str], rank: int) -> dict[str, Any]:
    """Where `rank` stands: among all, among those on its host, and among their like on other hosts."""
    host = hosts[rank]
    local = hosts[:rank].count(host)
    across = [name for name in dict.fromkeys(hosts) if hosts.count(name) > local]
    return {
        "hostname": host,
        "rank": rank,
        "size": len(hosts),
        "local_rank": local,
        "local_size": hosts.count(host),
        "cross_rank": across.index(host),
        "cross_size": len(across),
    }
