"""A Hadoop on hosts of a test bed: each daemon on its host, by the host's name, at Hadoop's default ports.

The gateway has no daemon: users are there. Sockets of a daemon are bound to the address of its host, and its files are
in the host's /tmp. Configuration, logs of daemons and `env.sh` are in a folder that all hosts share.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
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
class Started:
    """A daemon that was started: its process, and when that was, in seconds since the epoch."""

    process: subprocess.Popen[bytes]
    at: float


@dataclass(frozen=True)
class HostedHadoop:
    """A Hadoop on hosts.

    Attributes:
        cluster: The cluster, as a process on the gateway reaches it.
        hosts: The hosts, by name.
        started: The daemons that were started last, by name.
    """

    cluster: Cluster
    hosts: Mapping[str, Host]
    started: dict[str, Started] = field(default_factory=dict)

    def format(self) -> None:
        """Format HDFS, before its NameNode is started. Raises SystemExit, which names the log, if that fails."""
        host, log = self.hosts[self.cluster.hosts[NAME_NODE.name]], self._get_log(NAME_NODE.name)
        command = self.cluster.build_command(NAME_NODE, "-format", "-force", "-nonInteractive")
        environment = self.cluster.build_daemon_environment(NAME_NODE)
        if host.start(*command, log=log, folder=FILES, environment=environment).wait():
            raise SystemExit(f"HDFS cannot be formatted on host {host.name}; see {log}")

    def start(self, host: str) -> None:
        """Start the daemons of a host that is on, those that do not run."""
        for name, daemon in self.cluster.daemons.items():
            runs = name in self.started and self.started[name].process.poll() is None
            if self.cluster.hosts[name] == host and not runs:
                at, log, environment = time.time(), self._get_log(name), self.cluster.build_daemon_environment(daemon)
                command = self.cluster.build_command(daemon)
                process = self.hosts[host].start(*command, log=log, folder=FILES, environment=environment)
                self.started[name] = Started(process, at)

    def wait(self) -> None:
        """Wait until all DataNodes and NodeManagers have registered, each since it was started last.

        Raises:
            SystemExit: A daemon has ended on a host that is on, or nodes are missing after minutes.
        """
        times = [f"{name}={started.at}" for name, started in self.started.items()]
        program = (sys.executable, "-m", "stack.hosts.registration", str(self.cluster.home), *times)
        with subprocess.Popen(self.hosts[GATEWAY].build_command(*program, folder=ROOT)) as waiting:
            while waiting.poll() is None:
                if ended := self.find_ended():
                    waiting.kill()
                    raise SystemExit(ended)
                time.sleep(0.1)
        if waiting.returncode:
            raise SystemExit(f"the Hadoop in {self.cluster.home} has not all its nodes")

    def find_ended(self) -> str:
        """Return a sentence about a daemon that has ended on a host that is on, an empty string if there is none."""
        for name, started in self.started.items():
            host = self.cluster.hosts[name]
            if self.hosts[host].is_on and started.process.poll() is not None:
                return f"{name} has ended on host {host}; see {self._get_log(name)}"
        return ""

    def reboot(self, host: str) -> None:
        """Boot a host that is off, and start its daemons."""
        for name, started in self.started.items():
            if self.cluster.hosts[name] == host:
                started.process.wait()
        self.hosts[host].boot()
        self.hosts[host].run("install", "-d", "-m", "1777", str(FILES))
        self.start(host)

    def _get_log(self, daemon: str) -> Path:
        return self.cluster.home / "log" / f"{daemon}.log"


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
    hadoop = HostedHadoop(cluster, hosts)
    hadoop.format()
    for place in dict.fromkeys(places.values()):
        hadoop.start(place)
    hadoop.wait()
    yield hadoop
