"""A real Hadoop on this machine, without containers: `python -m stack.hadoop.cluster start|stop|status --home DIR`.

With `--kerberos` a new one asks everybody for Kerberos, HDFS, YARN and their pages.

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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from requests.auth import AuthBase

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
from stack.hadoop.kerberos import Kdc

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "trainyard"
HOST = "localhost"
PATIENCE = 180.0


@dataclass(frozen=True)
class Cluster:
    """One cluster: its home folder, the port of each `daemon.port`, and the KDC of one that asks for Kerberos."""

    home: Path
    ports: dict[str, int]
    kdc: Kdc | None = None

    @classmethod
    def create(cls, home: Path, kerberos: bool = False) -> Cluster:
        """A new, formatted cluster in the empty folder `home`; nothing of it runs yet but the KDC."""
        if home.exists() and any(home.iterdir()):
            raise SystemExit(f"{home} is not empty; stop what is there, and remove it.")
        home.mkdir(parents=True, exist_ok=True)
        ports = _free_ports([*config.port_names(), *(["kdc"] if kerberos else [])])
        cluster = cls._of(home, ports)
        if cluster.kdc:
            cluster.kdc.create()
        others = cluster.kdc.properties() if cluster.kdc else {}
        addresses = {name: f"{HOST}:{port}" for name, port in cluster.ports.items()}
        for daemon in (None, *DAEMONS.values()):
            for name, text in config.files(daemon, home, addresses, others).items():
                file = cluster._conf(daemon) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        (home / "log").mkdir()
        (home / "pid").mkdir()
        cluster._start_kdc()  # a NameNode logs in even to format
        cluster._run(NAME_NODE, "-format", "-force", "-nonInteractive")
        (cluster._conf(None) / "spark-defaults.conf").write_text(_spark_defaults())
        (home / "env.sh").write_text(cluster.environment_script())
        (home / "cluster.json").write_text(json.dumps({"ports": cluster.ports}))
        return cluster

    @classmethod
    def open(cls, home: Path) -> Cluster:
        """The cluster that was created in `home`."""
        return cls._of(home, json.loads((home / "cluster.json").read_text())["ports"])

    @classmethod
    @contextlib.contextmanager
    def running(cls, home: Path, kerberos: bool = False) -> Iterator[Cluster]:
        """A new cluster in the empty folder `home`, healthy; it ends with the `with`."""
        cluster = cls.create(home, kerberos)
        try:
            cluster.start()
            cluster.wait()
            yield cluster
        finally:
            cluster.stop()

    @classmethod
    def _of(cls, home: Path, ports: dict[str, int]) -> Cluster:
        return cls(home, ports, Kdc(home / "kdc", ports["kdc"]) if "kdc" in ports else None)

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
        } | ({**self.kdc.environment, "KRB5CCNAME": str(self.kdc.tickets)} if self.kdc else {})

    def environment_script(self) -> str:
        return "".join(f"export {name}='{value}'\n" for name, value in self.environment().items())

    def start(self) -> None:
        """Start all daemons that do not run."""
        self._start_kdc()
        for name in DAEMONS:
            self._start(name, self._command(DAEMONS[name]))

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
        for name in (*reversed(DAEMONS), "kdc"):
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
            labeled = [node for node in nodes if node.get("nodeLabels") == [PARTITION]]
        except (requests.RequestException, IndexError) as error:
            return f"no answer yet ({error})"
        expected = sum(node.partition is not None for node in NODE_MANAGERS)
        if len(nodes) < len(NODE_MANAGERS) or len(labeled) < expected:
            return f"{len(nodes)} of {len(NODE_MANAGERS)} nodes, {len(labeled)} of {expected} with their label"
        return ""

    def yarn(self, path: str, **query: str) -> Any:
        """What the ResourceManager's REST interface says at `path`."""
        return self._get(f"{self.url('resourcemanager.http')}/ws/v1/cluster/{path}", query | {"user.name": USER})

    def _start_kdc(self) -> None:
        if self.kdc:
            self._start("kdc", self.kdc.command)
            if not _within(PATIENCE, self.kdc.logs_in):
                raise SystemExit(f"the KDC gives no ticket; see {self.home}/log/kdc.log")

    def _start(self, name: str, command: list[str]) -> None:
        if self.pid(name) is not None:
            return
        with (self.home / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=self._environment(), cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        (self.home / "pid" / name).write_text(f"{process.pid} {_started(process.pid)}")

    def _environment(self) -> dict[str, str]:
        """What daemons inherit, and through NodeManagers containers: nobody's ticket."""
        java = Path(shutil.which("java") or "java").resolve().parent.parent
        others = ("HADOOP_", "YARN_", "HDFS_", "KRB5")
        own = {name: value for name, value in os.environ.items() if not name.startswith(others)}
        return {"JAVA_HOME": str(java), **own, **(self.kdc.environment if self.kdc else {}), "KRB5CCNAME": os.devnull}

    def _label(self) -> None:
        known = self.yarn("get-node-labels").get("nodeLabelInfo") or []
        if PARTITION not in [label["name"] for label in (known if isinstance(known, list) else [known])]:
            url = f"{self.url('resourcemanager.http')}/ws/v1/cluster/add-node-labels"
            body: Any = {"nodeLabelInfo": [{"name": PARTITION, "exclusivity": True}]}
            answer = requests.post(url, params={"user.name": USER}, json=body, auth=self._auth, timeout=5)
            answer.raise_for_status()

    def _bean(self, port: str, name: str) -> dict[str, Any]:
        return dict(self._get(f"{self.url(port)}/jmx", {"qry": name})["beans"][0])

    def _get(self, url: str, query: dict[str, str]) -> Any:
        headers = {"Accept": "application/json"}
        answer = requests.get(url, params=query, headers=headers, auth=self._auth, timeout=5)
        answer.raise_for_status()
        return answer.json()

    @property
    def _auth(self) -> AuthBase | None:
        """How its pages know who asks: by the ticket of the user, where they ask for one."""
        return self.kdc.auth() if self.kdc else None

    def _conf(self, daemon: Daemon | None) -> Path:
        return self.home / "conf" / (daemon.name if daemon else "client")

    def _command(self, daemon: Daemon, *arguments: str) -> list[str]:
        return ["java", *config.java(daemon, self._conf(daemon), jars(), self.home / "log"), *arguments]

    def _run(self, daemon: Daemon, *arguments: str) -> None:
        with (self.home / "log" / f"{daemon.name}.log").open("ab") as log:
            command = self._command(daemon, *arguments)
            subprocess.run(command, env=self._environment(), cwd=self.home, stdout=log, stderr=log, check=True)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("start", "stop", "status"))
    parser.add_argument("--home", type=Path, default=Path(".run/hadoop"), help="folder of the cluster")
    parser.add_argument("--kerberos", action="store_true", help="a new cluster asks for Kerberos")
    chosen = parser.parse_args()
    home = chosen.home.resolve()
    if chosen.command == "start":
        cluster = Cluster.open(home) if (home / "cluster.json").exists() else Cluster.create(home, chosen.kerberos)
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
