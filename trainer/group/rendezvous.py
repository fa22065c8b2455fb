"""Connect the workers of a barrier stage: one exchange of addresses, then the process group."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Collection
from contextlib import suppress
from datetime import timedelta
from ipaddress import ip_address
from typing import Any

from trainyard.errors import TrainyardError


def get_own_address(context: Any) -> str:
    """Return the host at which other workers reach this one.

    Args:
        context: The BarrierTaskContext of this worker.
    """
    return os.environ.get("SPARK_LOCAL_IP") or _list_hosts(context)[context.partitionId()]


def list_other_hosts(context: Any) -> set[str]:
    """Return the hosts of workers that are not on the host of this one."""
    hosts = _list_hosts(context)
    return set(hosts) - {hosts[context.partitionId()]}


def serve_store(host: str, others: Collection[str], timeout: timedelta = timedelta(minutes=5)) -> Any:
    """Serve a TCPStore on a free port of `host` only: a store that selects its port itself listens on all addresses.

    Args:
        host: A name or an address of this host. Of several addresses, an IPv4 one is used, as by Spark.
        others: The other hosts whose workers connect.
        timeout: The timeout of the store.

    Raises:
        TrainyardError: `host` is not this host, or `others` cannot reach what its name stands for here.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
        family, *_, address = min(addresses, key=lambda each: each[0] != socket.AF_INET)
        if _is_loopback(str(address[0])) and not all(map(_is_loopback, others)):
            raise OSError(
                f"on its own node the name stands for {address[0]}, where other nodes cannot connect. Give it the "
                "node's address in /etc/hosts there"
            )
        listener = socket.create_server(address, family=family)
        port = listener.getsockname()[1]
        return TCPStore(
            host, port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=listener.detach()
        )
    except (RuntimeError, OSError) as error:
        raise TrainyardError(f"rank 0 cannot listen on {host}: {error}") from error


def join_group(context: Any, timeout: timedelta, cores: int) -> Any:
    """Connect to the other workers, and return the World of this one.

    Rank 0 starts the store of the process group before the exchange of addresses, which sends its port to the others.

    Args:
        context: The BarrierTaskContext of this worker.
        timeout: The timeout of collectives.
        cores: The cores of this worker, which are its threads.

    Raises:
        TrainyardError: Rank 0 could not start the store. Every worker raises it, so that none waits for the others.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    from trainyard.trainer.world import Gpus, World, list_gpus, select_gpus

    rank = context.partitionId()
    size = len(context.getTaskInfos())
    host = get_own_address(context)
    store, failure = None, None
    if rank == 0 and size > 1:
        try:
            store = serve_store(host, list_other_hosts(context), timeout)
        except TrainyardError as error:
            failure = str(error)
    resource = context.resources().get("gpu")
    own_gpus = Gpus(host, list(resource.addresses) if resource else [], list_gpus())
    message = json.dumps({"port": store.port if store else None, "failure": failure, "gpus": own_gpus})
    peers = [json.loads(answer) for answer in context.allGather(message)]
    if peers[0]["failure"]:
        raise TrainyardError(peers[0]["failure"])
    workers = [Gpus(*peer["gpus"]) for peer in peers]
    gpus, shares_gpu = select_gpus(workers)
    world = World(rank, size, gpus[rank], host, shares_gpu)
    if shares_gpu and world.is_main:
        print("workers share a GPU, which NCCL refuses: they communicate through the memory of the host", flush=True)
    torch.set_num_threads(cores)
    if world.device.type == "cuda":
        torch.cuda.set_device(world.device)
    if size > 1:
        if store is None:
            store = TCPStore(
                workers[0].host, peers[0]["port"], is_master=False, wait_for_workers=False, timeout=timeout
            )
        dist.init_process_group(world.backend, store=store, rank=rank, world_size=size, timeout=timeout)
    return world


def _list_hosts(context: Any) -> list[str]:
    """Return the host of each worker, by rank, as Spark names it."""
    return [str(task.address.split(":")[0]) for task in context.getTaskInfos()]


def _is_loopback(host: str) -> bool:
    with suppress(OSError):
        return ip_address(socket.getaddrinfo(host, 0)[0][4][0]).is_loopback
    return False
