"""Connect to the other hosts of a worker group once, with a short deadline, before torch does so with a long one."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

from trainyard.errors import UnavailableError, summarize

DIAL_SECONDS = 30.0
"""How long the connection to another host may take."""


def dial_others(store: Any, rank: int, hosts: Sequence[str], listener: socket.socket) -> None:
    """Publish where this worker listens; the first worker of a host connects to the first one of each other host.

    Nobody accepts these connections: the backlog of a listener has room for one of each host. The listener must stay
    open until all workers have done so.

    Args:
        store: The store of the group.
        rank: The number of this worker.
        hosts: The host of each worker, by rank.
        listener: A socket of this worker; the kernel completes the connections, which are not used.

    Raises:
        UnavailableError: A worker cannot be reached.
    """
    store.set(f"listeners/{rank}", json.dumps(listener.getsockname()[:2]))
    if hosts.index(hosts[rank]) != rank:
        return
    first_ranks = {host: hosts.index(host) for host in hosts if host != hosts[rank]}
    listeners = store.multi_get([f"listeners/{other}" for other in first_ranks.values()]) if first_ranks else []
    for (host, other), value in zip(first_ranks.items(), listeners, strict=True):
        address, port = json.loads(value)
        try:
            socket.create_connection((address, port), DIAL_SECONDS).close()
        except OSError as error:
            raise UnavailableError(
                f"rank {rank} on {hosts[rank]} cannot connect to rank {other} on {host}, at {address}:{port}: "
                f"{summarize(error)}. If nodes have firewalls, allow connections between those of workers, and from "
                "them to the driver, on the ports of net.ipv4.ip_local_port_range"
            ) from error
