"""Average gradients with Horovod's optimizer, among workers that run already: without ssh and horovodrun."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from torch import nn
from torch.optim import Optimizer

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.strategies import Horovod as Options
from trainyard.trainer.model.sparse import refuse_sparse_gradients
from trainyard.trainer.strategies.base import OnCommunication, Strategy, broadcast_buffers, count_bytes, ring_allreduce
from trainyard.trainer.world import World


class Horovod(Strategy[Options]):
    """Horovod's DistributedOptimizer."""

    def __init__(self, options: Options, world: World) -> None:
        super().__init__(options, world)
        self._hvd = import_horovod()
        self._rendezvous = ExitStack()
        self._rendezvous.enter_context(serve_rendezvous(world))
        self._hvd.init()

    def wrap_model(self, network: nn.Module, on_communication: OnCommunication) -> nn.Module:
        """Copy the weights of rank 0 to all workers.

        Raises:
            TrainyardError: Sparse gradients would be compressed.
        """
        if self.options.compression:
            refuse_sparse_gradients(network, f"strategy='horovod' with compression={self.options.compression!r}")
        self._hvd.broadcast_parameters(network.state_dict(), root_rank=0)
        self._network, self._on_communication = network, on_communication
        return network

    def wrap_optimizer(self, optimizer: Optimizer, micro_batches: int) -> Optimizer:
        """Return Horovod's DistributedOptimizer."""
        compression = self._hvd.Compression.fp16 if self.options.compression else self._hvd.Compression.none
        self._optimizer = self._hvd.DistributedOptimizer(
            optimizer, self._network.named_parameters(), compression, backward_passes_per_step=micro_batches
        )
        # torch's checkpoints call zero_grad with an argument that Horovod's method does not take.
        zero_grad = self._optimizer.zero_grad
        self._optimizer.zero_grad = lambda set_to_none=True: zero_grad()
        return self._optimizer  # type: ignore[no-any-return]

    def optimizer_step(self) -> AbstractContextManager[None]:
        """Wait for Horovod's communication."""
        size = sum(count_bytes(p.grad) for p in self._network.parameters() if p.grad is not None)
        self.bytes_sent += ring_allreduce(size // (2 if self.options.compression else 1), self.world.size)
        wall, start = time.time_ns(), time.perf_counter_ns()
        self._optimizer.synchronize()
        self._on_communication(wall, time.perf_counter_ns() - start, True)
        return self._optimizer.skip_synchronize()  # type: ignore[no-any-return]

    def synchronize(self) -> None:
        """Copy buffers from rank 0 to all workers, so that they validate the model that is saved."""
        broadcast_buffers(self._network, self.world)

    def close(self) -> None:
        """Shut Horovod and its rendezvous down."""
        self._hvd.shutdown()
        self._rendezvous.close()


def import_horovod() -> Any:
    """Return the module horovod.torch.

    Raises:
        TrainyardError: It is not installed.
    """
    try:
        import horovod.torch
    except ImportError as error:
        raise TrainyardError(
            f"strategy='horovod': the workers' Python environment has no Horovod that matches its torch ({error}). "
            "Install the wheel that `make horovod` builds, or write strategy='allreduce'."
        ) from error
    return horovod.torch


@contextmanager
def serve_rendezvous(world: World) -> Iterator[None]:
    """Set the environment that Horovod's `init` reads; rank 0 serves the rendezvous meanwhile."""
    hosts = world.gather(world.host)
    with serve(hosts, world.host) if world.is_main else nullcontext("") as address:
        variables = build_environment(hosts, world.rank, world.broadcast_value(address))
        previous = {name: os.environ[name] for name in variables if name in os.environ}
        os.environ |= variables
        try:
            yield
        finally:
            for name in variables:
                del os.environ[name]
            os.environ |= previous


def build_environment(hosts: Sequence[str], rank: int, address: str) -> dict[str, str]:
    """Return the environment that Horovod's `init` reads.

    Args:
        hosts: The host of each worker, by rank.
        rank: The number of this worker.
        address: Where the rendezvous is served ("host:port").
    """
    host, _, port = address.rpartition(":")
    return {f"HOROVOD_{name.upper()}": str(value) for name, value in _build_slot(hosts, rank).items()} | {
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": host,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
    }


@contextmanager
def serve(hosts: Sequence[str], host: str) -> Iterator[str]:
    """Serve the rendezvous for the workers on `hosts`, and yield its address; Horovod's own listens on all addresses.

    Whoever can connect to it can take part in the group: Horovod asks nobody.
    """
    from horovod.runner.common.util.hosts import SlotInfo
    from horovod.runner.http.http_server import RendezvousHandler, RendezvousHTTPServer

    server = RendezvousHTTPServer((host, 0), RendezvousHandler, verbose=0)
    server.init([SlotInfo(**_build_slot(hosts, rank)) for rank in range(len(hosts))])
    thread = threading.Thread(target=server.serve_forever, name="horovod rendezvous", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _build_slot(hosts: Sequence[str], rank: int) -> dict[str, Any]:
    """Return the number of a worker: among all, on its host, and among those with its local rank on other hosts."""
    host = hosts[rank]
    local_rank = hosts[:rank].count(host)
    cross_hosts = [name for name in dict.fromkeys(hosts) if hosts.count(name) > local_rank]
    return {
        "hostname": host,
        "rank": rank,
        "size": len(hosts),
        "local_rank": local_rank,
        "local_size": hosts.count(host),
        "cross_rank": cross_hosts.index(host),
        "cross_size": len(cross_hosts),
    }
