"""Wait until a Hadoop has all its nodes, and each of them has reported since its daemon was started.

    python -m stack.hosts.registration HOME DAEMON=SECONDS ...

Hadoop lists a host that was switched off as a node until it has been silent for long, also when the host has been
booted again meanwhile. HOME is the folder of the cluster, SECONDS the time since the epoch when a daemon was started.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import requests

from stack.hadoop import web
from stack.hadoop.cluster import TIMEOUT_SECONDS, Cluster
from stack.hadoop.config import DATA_NODES, NodeManager
from stack.hadoop.processes import wait_until


def find_silent(
    started: Mapping[str, float], hosts: Mapping[str, str], nodes: Sequence[Mapping[str, Any]],
    data_nodes: Mapping[str, Mapping[str, Any]], now: float,
) -> list[str]:  # fmt: skip
    """Return the NodeManagers and DataNodes that have not reported since they were started.

    Args:
        started: When each daemon was started, in seconds since the epoch.
        hosts: The host of each daemon.
        nodes: The nodes that YARN lists; `lastHealthUpdate` is when a NodeManager examined its node last, in
            milliseconds since the epoch, which it does at its start.
        data_nodes: The DataNodes that HDFS lists, by host and port; `lastContact` is the number of whole seconds since
            they reported last.
        now: The time at which they were listed, in seconds since the epoch.
    """
    examined = {node["nodeHostName"]: node["lastHealthUpdate"] / 1000 for node in nodes}
    contacted = {name.partition(":")[0]: now - node["lastContact"] - 1 for name, node in data_nodes.items()}
    silent = []
    for name, at in started.items():
        reported = contacted if name in [daemon.name for daemon in DATA_NODES] else examined
        if reported.get(hosts[name], 0.0) < at:
            silent.append(name)
    return silent


def _query(cluster: Cluster, started: Mapping[str, float]) -> list[str]:
    try:
        nodes = cluster.query_yarn("nodes", states="RUNNING")["nodes"] or {}
        url, now = cluster.get_url("namenode.http"), time.time()
        listed = json.loads(web.get_bean(url, "Hadoop:service=NameNode,name=NameNodeInfo", None)["LiveNodes"])
    except (requests.RequestException, IndexError):
        return [*started]
    return find_silent(started, cluster.hosts, nodes.get("node", []), listed, now)


def main() -> None:
    home, *pairs = sys.argv[1:]
    cluster = Cluster.open(Path(home))
    times = {name: float(at) for name, _, at in (pair.partition("=") for pair in pairs)}
    daemons = [daemon for daemon in cluster.daemons.values() if daemon in DATA_NODES or isinstance(daemon, NodeManager)]
    started = {daemon.name: times[daemon.name] for daemon in daemons if daemon.name in times}
    cluster.wait()
    if not wait_until(TIMEOUT_SECONDS, lambda: not _query(cluster, started)):
        raise SystemExit(f"{', '.join(_query(cluster, started))} did not report within {TIMEOUT_SECONDS:.0f} s")


if __name__ == "__main__":
    main()
