"""A Hadoop on hosts of a test bed: each daemon on its host, by the host's name, at Hadoop's default ports.

The gateway has no daemon: users are there. Sockets of a daemon are bound to the address of its host, and its files are
in the host's /tmp. Configuration, logs of daemons and `env.sh` are in a folder that all hosts share.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from stack.hadoop import config
from stack.hadoop.cluster import Cluster
from stack.hadoop.config import NAME_NODE, Properties
from stack.hosts.bed import ROOT
from stack.hosts.host import Host

GATEWAY = "gateway"
PLACES: Mapping[str, str] = MappingProxyType(
    {
        "namenode": "master",
        "resourcemanager": "master",
        "datanode1": "node1",
        "node1": "node1",
        "datanode2": "gpunode1",
        "gpunode1": "gpunode1",
        "gpunode2": "gpunode2",
    }
)
"""The host of each daemon."""
HOSTS = (GATEWAY, *dict.fromkeys(PLACES.values()))
FILES = Path("/tmp/hadoop")  # noqa: S108 (each host has a /tmp of its own)


@dataclass(frozen=True)
class HostedHadoop:
    """A Hadoop on hosts.

    Attributes:
        cluster: The cluster, as a process on the gateway reaches it.
        hosts: The hosts, by name.
    """

    cluster: Cluster
    hosts: Mapping[str, Host]

    def start(self, host: str) -> None:
        """Start the daemons of a host, which has been booted."""
        for name, daemon in self.cluster.daemons.items():
            if self.cluster.hosts[name] == host:
                self.hosts[host].start(
                    *self.cluster.build_command(daemon), log=self.cluster.home / "log" / f"{name}.log", folder=FILES,
                    environment=self.cluster.build_daemon_environment(daemon),
                )  # fmt: skip

    def wait(self) -> None:
        """Wait until all DataNodes and NodeManagers have registered."""
        program = ("-m", "stack.hadoop", "wait", "--home", str(self.cluster.home))
        self.hosts[GATEWAY].run(sys.executable, *program, folder=ROOT)

    def reboot(self, host: str) -> None:
        """Boot a host that is off, and start its daemons."""
        self.hosts[host].boot()
        self.hosts[host].run("install", "-d", "-m", "1777", str(FILES))
        self.start(host)


@contextmanager
def run_hadoop(
    hosts: Mapping[str, Host], home: Path, places: Mapping[str, str] = PLACES,
    properties: Mapping[str, Properties] = MappingProxyType({}),
) -> Iterator[HostedHadoop]:  # fmt: skip
    """Run a new Hadoop on hosts that run; it is healthy on entry, and ends with its hosts.

    Args:
        hosts: The hosts; one of them is `GATEWAY`.
        home: The folder of its configuration and logs; it does not exist.
        places: The host of each daemon of `config.DAEMONS`, and of more of `config.SPARE_NODES`.
        properties: Further properties, by site.
    """
    daemons = config.DAEMONS | {daemon.name: daemon for daemon in config.SPARE_NODES}
    ports = {f"{name}.{port}": number for name in places for port, number in daemons[name].ports.items()}
    cluster = Cluster(home, ports, hosts=places)
    (home / "log").mkdir(parents=True)
    for daemon in (None, *cluster.daemons.values()):
        for name, text in config.build_files(daemon, FILES, cluster.addresses, properties).items():
            file = cluster.conf_dir(daemon) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    (cluster.conf_dir(None) / "spark-defaults.conf").write_text(config.build_local_spark_defaults({}))
    (home / "env.sh").write_text(cluster.build_environment_script())
    (home / "cluster.json").write_text(json.dumps({"ports": ports, "hosts": dict(places)}))
    for host in hosts.values():
        host.run("install", "-d", "-m", "1777", str(FILES))
    format_name_node = cluster.build_command(NAME_NODE, "-format", "-force", "-nonInteractive")
    master, environment = hosts[places[NAME_NODE.name]], cluster.build_daemon_environment(NAME_NODE)
    master.run(*format_name_node, folder=FILES, env=environment, capture_output=True)
    hadoop = HostedHadoop(cluster, hosts)
    for place in dict.fromkeys(places.values()):
        hadoop.start(place)
    hadoop.wait()
    yield hadoop
