"""A real Hadoop on this machine, without containers: `python -m stack.hadoop.cluster start|stop|status --home DIR`.

Daemons listen on loopback, on ports that were free, so several clusters live side by side: all that one
is lies in its home. `start` ends when every node has registered with its label; `stop` ends every daemon.
`HOME/env.sh` is to be sourced by what submits to it.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from stack.hadoop import config
from stack.hadoop.config import (
    DAEMONS,
    DATA_NODES,
    NAME_NODE,
    NODE_MANAGERS,
    PARTITION,
    START_QUICKLY,
    USER,
    Daemon,
)

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "trainyard"
HOST = "localhost"
PATIENCE = 180.0


@dataclass(frozen=True)
class Cluster:
    """One cluster: its home folder, and the port of each `daemon.port`."""

    home: Path
    ports: dict[str, int]

    @classmethod
    def create(cls, home: Path) -> Cluster:
        """A new, formatted cluster in the empty folder `home`; nothing runs yet."""
        if home.exists() and any(home.iterdir()):
            raise SystemExit(f"{home} is not empty; stop what is there, and remove it.")
        home.mkdir(parents=True, exist_ok=True)
        cluster = cls(home, _free_ports(config.port_names()))
        addresses = {name: f"{HOST}:{port}" for name, port in cluster.ports.items()}
        for daemon in (None, *DAEMONS.values()):
            for name, text in config.files(daemon, home, addresses).items():
                file = cluster._conf(daemon) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        (home / "log").mkdir()
        (home / "pid").mkdir()
        cluster._run(NAME_NODE, "-format", "-force", "-nonInteractive")
        (cluster._conf(None) / "spark-defaults.conf").write_text(_spark_defaults())
        (home / "env.sh").write_text(cluster.environment_script())
        (home / "cluster.json").write_text(json.dumps({"ports": cluster.ports}))
        return cluster

    @classmethod
    def open(cls, home: Path) -> Cluster:
        """The cluster that was created in `home`."""
        return cls(home, json.loads((home / "cluster.json").read_text())["ports"])

    def url(self, port: str) -> str:
        """Where the REST interface `daemon.port` answers."""
        return f"http://{HOST}:{self.ports[port]}"

    @property
    def storage(self) -> str:
        return f"hdfs://{HOST}:{self.ports['namenode.rpc']}/trainyard"

    def environment(self) -> dict[str, str]:
        """What a process needs to submit to this cluster, and Airflow to know it."""
        spark = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster", "queue": "etl"}}
        yarn = {"conn_type": "trainyard", "extra": {"storage": self.storage}}
        return {
            "HADOOP_CONF_DIR": str(self._conf(None)),
            "SPARK_CONF_DIR": str(self._conf(None)),
            "SPARK_SUBMIT_OPTS": START_QUICKLY,
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
            "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps(yarn),
        }

    def environment_script(self) -> str:
        return "".join(f"export {name}='{value}'\n" for name, value in self.environment().items())

    def start(self) -> None:
        """Start all daemons that do not run."""
        for name in DAEMONS:
            if self.pid(name) is None:
                with (self.home / "log" / f"{name}.log").open("ab") as log:
                    process = subprocess.Popen(
                        self._command(DAEMONS[name]), env=_environment(), cwd=self.home, stdin=subprocess.DEVNULL,
                        stdout=log, stderr=log, start_new_session=True,
                    )  # fmt: skip
                (self.home / "pid" / name).write_text(f"{process.pid} {_started(process.pid)}")

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send one daemon a signal, and wait for its end."""
        pid = self.pid(name)
        if pid is None:
            return
        os.kill(pid, number)
        # A NodeManager that looks for its ResourceManager does not hear SIGTERM for minutes.
        if not _within(10, lambda: self.pid(name) is None):
            os.kill(pid, signal.SIGKILL)
            _within(PATIENCE, lambda: self.pid(name) is None)

    def stop(self) -> None:
        """End all daemons, and what they started."""
        for name in reversed(DAEMONS):
            self.kill(name, signal.SIGTERM)

    def pid(self, name: str) -> int | None:
        """The process of a daemon, None when it does not run."""
        file = self.home / "pid" / name
        if not file.exists():
            return None
        pid, started = file.read_text().split()
        _reap(int(pid))
        return int(pid) if _started(int(pid)) == started else None

    def wait(self) -> None:
        """Return when every DataNode and NodeManager has registered, the latter with their labels.

        Raises SystemExit when a daemon has ended, or after `PATIENCE` seconds.
        """
        end, trouble = time.monotonic() + PATIENCE, ""
        while time.monotonic() < end:
            if dead := [name for name in DAEMONS if self.pid(name) is None]:
                raise SystemExit(f"{dead[0]} has ended; see {self.home}/log/{dead[0]}.log")
            trouble = self.trouble()
            if not trouble:
                return
            time.sleep(0.3)
        raise SystemExit(f"the cluster is not up after {PATIENCE:.0f} s: {trouble}; see {self.home}/log")

    def trouble(self) -> str:
        """What is missing yet, or nothing."""
        try:
            state = self._bean("namenode.http", "Hadoop:service=NameNode,name=FSNamesystemState")
            if state["NumLiveDataNodes"] < len(DATA_NODES):
                return f"{state['NumLiveDataNodes']} of {len(DATA_NODES)} DataNodes"
            if mode := self._bean("namenode.http", "Hadoop:service=NameNode,name=NameNodeInfo")["Safemode"]:
                return str(mode)
            self._label()
            nodes = (self.yarn("nodes", states="RUNNING")["nodes"] or {}).get("node", [])
            labelled = [node for node in nodes if node.get("nodeLabels") == [PARTITION]]
        except (requests.RequestException, IndexError) as error:
            return f"no answer yet ({error})"
        expected = sum(node.partition is not None for node in NODE_MANAGERS)
        if len(nodes) < len(NODE_MANAGERS) or len(labelled) < expected:
            return f"{len(nodes)} of {len(NODE_MANAGERS)} nodes, {len(labelled)} of {expected} with their label"
        return ""

    def yarn(self, path: str, **query: str) -> Any:
        """What the ResourceManager's REST interface says at `path`."""
        return _get(f"{self.url('resourcemanager.http')}/ws/v1/cluster/{path}", query | {"user.name": USER})

    def _label(self) -> None:
        known = self.yarn("get-node-labels").get("nodeLabelInfo") or []
        if PARTITION not in [label["name"] for label in (known if isinstance(known, list) else [known])]:
            url = f"{self.url('resourcemanager.http')}/ws/v1/cluster/add-node-labels"
            body: Any = {"nodeLabelInfo": [{"name": PARTITION, "exclusivity": True}]}
            requests.post(url, params={"user.name": USER}, json=body, timeout=5).raise_for_status()

    def _bean(self, port: str, name: str) -> dict[str, Any]:
        return dict(_get(f"{self.url(port)}/jmx", {"qry": name})["beans"][0])

    def _conf(self, daemon: Daemon | None) -> Path:
        return self.home / "conf" / (daemon.name if daemon else "client")

    def _command(self, daemon: Daemon, *arguments: str) -> list[str]:
        return ["java", *config.java(daemon, self._conf(daemon), jars(), self.home / "log"), *arguments]

    def _run(self, daemon: Daemon, *arguments: str) -> None:
        with (self.home / "log" / f"{daemon.name}.log").open("ab") as log:
            command = self._command(daemon, *arguments)
            subprocess.run(command, env=_environment(), cwd=self.home, stdout=log, stderr=log, check=True)


def jars() -> Path:
    """The folder of the daemons' jars: fetched by Maven once, kept by the hash of the pom."""
    pom = HERE / "pom.xml"
    folder = CACHE / f"hadoop-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        if not shutil.which("mvn"):
            raise SystemExit("Maven is needed to fetch Hadoop and there is no mvn on the PATH.")
        staged = folder.with_name(f"{folder.name}.{os.getpid()}")
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={staged}"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        try:
            staged.rename(folder)
        except OSError:
            shutil.rmtree(staged)
    return folder


def _environment() -> dict[str, str]:
    """What daemons inherit, and through NodeManagers containers."""
    java = Path(shutil.which("java") or "java").resolve().parent.parent
    own = {name: value for name, value in os.environ.items() if not name.startswith(("HADOOP_", "YARN_", "HDFS_"))}
    return {"JAVA_HOME": str(java)} | own


def _spark_defaults() -> str:
    """What every submission needs here: Spark's jars are on each node, which is this machine."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        raise SystemExit("pyspark is not installed beside this Python; use that of the environment (.venv/bin/python).")
    found = Path(pyspark.submodule_search_locations[0])
    return config.spark_defaults(
        found,
        {
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executorEnv.PATH": f"{HERE / 'bin'}:{os.defpath}:/usr/local/bin",
        },
    )


def _free_ports(names: list[str]) -> dict[str, int]:
    """Ports that nothing listens on, below the range that outgoing connections take theirs from."""
    candidates = iter(random.sample(range(20000, 32000), 12000))
    return {name: next(port for port in candidates if _is_free(port)) for name in names}


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _started(pid: int) -> str:
    """When a live process started, in clock ticks: with its number, what it is known by. Empty when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "XZ" else fields[19]


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def _within(seconds: float, true: Any) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return True
        time.sleep(0.1)
    return False


def _get(url: str, query: dict[str, str]) -> Any:
    answer = requests.get(url, params=query, headers={"Accept": "application/json"}, timeout=5)
    answer.raise_for_status()
    return answer.json()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("start", "stop", "status"))
    parser.add_argument("--home", type=Path, default=Path(".run/hadoop"), help="folder of the cluster")
    chosen = parser.parse_args()
    home = chosen.home.resolve()
    if chosen.command == "start":
        cluster = Cluster.open(home) if (home / "cluster.json").exists() else Cluster.create(home)
        cluster.start()
        cluster.wait()
        print(f"ResourceManager {cluster.url('resourcemanager.http')}  NameNode {cluster.url('namenode.http')}")
        print(f"source {home}/env.sh to submit to it")
    elif not (home / "cluster.json").exists():
        raise SystemExit(f"there is no cluster in {home}")
    elif chosen.command == "stop":
        Cluster.open(home).stop()
    else:
        print(Cluster.open(home).trouble() or "up")


if __name__ == "__main__":
    main()
