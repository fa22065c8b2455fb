"""Connect the workers of a barrier stage: their process group, whose addresses the driver's store has."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_interface
from typing import Any
from urllib.parse import parse_qs, urlsplit

from trainyard.errors import TrainyardError
from trainyard.trainer.connections.channel import DriverAddress, listen
from trainyard.trainer.connections.dialing import dial_others
from trainyard.trainer.connections.process_group import create_process_group

_INTERFACE = "GLOO_SOCKET_IFNAME"


def get_own_address(context: Any) -> str:
    """Return the host at which other workers reach this one.

    Args:
        context: The BarrierTaskContext of this worker.
    """
    return os.environ.get("SPARK_LOCAL_IP") or list_hosts(context)[context.partitionId()]


def list_hosts(context: Any) -> list[str]:
    """Return the host of each worker, by rank, as Spark names it."""
    return [str(task.address.split(":")[0]) for task in context.getTaskInfos()]


def list_other_hosts(context: Any) -> set[str]:
    """Return the hosts of workers that are not on the host of this one."""
    hosts = list_hosts(context)
    return set(hosts) - {hosts[context.partitionId()]}


def listen_for(others: Collection[str], host: str, backlog: int | None = None) -> socket.socket:
    """Return a socket that listens on a free port of `host` only, where workers of other hosts can connect.

    Args:
        others: The other hosts whose workers connect.
        host: A name or an address of this host.
        backlog: How many connections may wait to be accepted.

    Raises:
        TrainyardError: `host` is not this host, or `others` cannot reach what its name stands for here.
    """
    try:
        listener = listen(host, backlog)
    except OSError as error:
        raise TrainyardError(f"a worker cannot listen on {host}: {error}") from error
    address = listener.getsockname()[0]
    if _is_loopback(address) and not all(map(_is_loopback, others)):
        listener.close()
        raise TrainyardError(
            f"a worker cannot listen on {host}: on its own node the name stands for {address}, where other nodes "
            "cannot connect. Give it the node's address in /etc/hosts there"
        )
    return listener


def listen_as_gloo(context: Any, host: str) -> socket.socket:
    """Return a socket that listens where torch's gloo does, if it has the variable of `get_interface`.

    Args:
        context: The BarrierTaskContext of this worker.
        host: A name or an address of this host.

    Raises:
        TrainyardError: See `listen_for`.
    """
    chosen = _list_interfaces().get(os.environ.get(_INTERFACE, ""), [])
    own = next((each.address for each in chosen if each.family == socket.AF_INET), host)
    return listen_for(list_other_hosts(context), own, len(set(list_hosts(context))))


def get_interface(listener: socket.socket) -> dict[str, str]:
    """Return the variable by which gloo uses the network interface of a listener, unless the environment has it.

    By itself gloo listens on what the host's own name stands for, which may be its loopback address.
    """
    name = None if _INTERFACE in os.environ else _find_interface(listener.getsockname()[0])
    return {_INTERFACE: name} if name else {}


def serve_store(host: str, others: Collection[str], timeout: timedelta = timedelta(minutes=5)) -> Any:
    """Serve a TCPStore on a free port of `host` only: a store that selects its port itself listens on all addresses.

    It is for scripts, which connect to one by their environment; whoever can connect to it can read and change it.

    Args:
        host: A name or an address of this host.
        others: The other hosts whose workers connect.
        timeout: The timeout of the store.

    Raises:
        TrainyardError: See `listen_for`.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = listen_for(others, host)
    port = listener.getsockname()[1]
    return TCPStore(
        host, port, is_master=True, wait_for_workers=False, timeout=timeout, master_listen_fd=listener.detach()
    )


@contextmanager
def use_store(store: Any, rank: int, size: int) -> Iterator[None]:
    """Have `init_process_group` of a script in the body use a store, and not the TCPStore that its environment names.

    A single worker that asks for a group of several, which it has started itself, meets them as its environment says.
    This uses a private name of torch.distributed: `_rendezvous_handlers`.

    Args:
        store: The store.
        rank: The number of this worker.
        size: How many workers there are.
    """
    from torch.distributed.rendezvous import _rendezvous_handlers

    before = _rendezvous_handlers["env"]

    def meet(url: str, **options: Any) -> Iterator[tuple[Any, int, int]]:
        asked = parse_qs(urlsplit(url).query).get("world_size") or [os.environ.get("WORLD_SIZE", str(size))]
        if size == 1 and asked[0] not in ("-1", "1"):
            yield from before(url, **options)
        else:
            yield store, rank, size

    _rendezvous_handlers["env"] = meet
    try:
        yield
    finally:
        _rendezvous_handlers["env"] = before


def join_group(context: Any, address: DriverAddress, timeout: timedelta, cores: int) -> Any:
    """Connect to the other workers, and return the World of this one.

    Args:
        context: The BarrierTaskContext of this worker.
        address: The driver, which serves the store of the group.
        timeout: The timeout of collectives.
        cores: The cores of this worker, which are its threads.

    Raises:
        UnavailableError: The driver or another worker cannot be reached.
        TrainyardError: Other nodes cannot reach this one by its name, or a process that is none of the group's workers
            has taken the place of one.
    """
    import torch

    from trainyard.trainer.connections.store import Store
    from trainyard.trainer.membership import Membership
    from trainyard.trainer.world import Gpus, World, list_gpus, select_gpus

    rank = context.partitionId()
    size = len(context.getTaskInfos())
    host = get_own_address(context)
    resource = context.resources().get("gpu")
    workers = [Gpus(host, list(resource.addresses) if resource else [], list_gpus())]
    with ExitStack() as stack:
        if size > 1:
            listener = stack.enter_context(listen_as_gloo(context, host))
            store = Store(address, timeout)
            dial_others(store, rank, list_hosts(context), listener)
            os.environ.update(get_interface(listener))
            _compare_builds(store, rank, host)
            store.set(f"gpus/{rank}", json.dumps(workers[0]))
            workers = [Gpus(*json.loads(one)) for one in store.multi_get([f"gpus/{other}" for other in range(size)])]
        gpus, shares_gpu = select_gpus(workers)
        world = World(rank, size, gpus[rank], host, shares_gpu, timeout, Membership(address.secret, rank, size))
        if shares_gpu and world.is_main:
            print("workers share a GPU, which NCCL refuses: they communicate by the memory of the host", flush=True)
        torch.set_num_threads(cores)
        if world.device.type == "cuda":
            torch.cuda.set_device(world.device)
        if size > 1:
            create_process_group(world, store, timeout)
    return world


def _compare_builds(store: Any, rank: int, host: str) -> None:
    """Check that this worker has the torch and the Python of rank 0. Raises TrainyardError."""
    import torch

    own = f"torch {torch.__version__} on Python {sys.version_info.major}.{sys.version_info.minor}"
    if rank == 0:
        store.set("build", json.dumps([host, own]))
        return
    first_host, first = json.loads(store.get("build"))
    if own != first:
        raise TrainyardError(
            f"rank {rank} on {host} has {own}, but rank 0 on {first_host} {first}. Install the same on all nodes, or "
            "ship an environment: environment= of the operator"
        )


def _find_interface(address: str) -> str | None:
    """Return the network interface that has an address of this host."""
    own = ip_address(address)
    for name, addresses in _list_interfaces().items():
        for each in addresses:
            if each.family in (socket.AF_INET, socket.AF_INET6) and _has(own, each.address, each.netmask):
                return name
    return None


def _has(own: IPv4Address | IPv6Address, address: str, netmask: str | None) -> bool:
    """Return whether an interface with this address has `own`; a loopback interface has a network of them."""
    unscoped = address.partition("%")[0]
    if own.is_loopback and own.version == 4 and netmask:
        return own in ip_interface(f"{unscoped}/{netmask}").network
    return own == ip_address(unscoped)


def _is_loopback(host: str) -> bool:
    with suppress(OSError):
        return ip_address(socket.getaddrinfo(host, 0)[0][4][0]).is_loopback
    return False


def _list_interfaces() -> dict[str, list[Any]]:
    """Return the addresses of each network interface; none without psutil, which `make gpu` does not need."""
    try:
        import psutil
    except ImportError:
        return {}
    return psutil.net_if_addrs()
