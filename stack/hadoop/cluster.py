"""A real Hadoop on this machine, without containers.

Without Kerberos, HDFS has a superuser of its own and checks permissions, and NodeManagers run as another user than the
one who submits, as on most clusters. The latter needs root: a line says so if it is not possible.

Daemons listen on free ports of the loopback interface, and all files of a cluster are in its home, so several clusters
can run at the same time. Source `HOME/env.sh` to submit applications to a cluster.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import requests
from requests.auth import AuthBase

from stack.hadoop import config, web
from stack.hadoop.config import (
    CONTAINER_USER,
    DAEMONS,
    DATA_NODES,
    DIRECTORIES,
    NAME_NODE,
    PARTITION,
    RESOURCE_MANAGER,
    SPARE_NODES,
    STANDBY_NAME_NODE,
    STANDBY_RESOURCE_MANAGER,
    STANDBYS,
    START_QUICKLY,
    SUPERUSER,
    USER,
    Daemon,
    NodeManager,
    Properties,
)
from stack.hadoop.jars import fetch_jars
from stack.hadoop.kerberos import Kdc
from stack.hadoop.processes import build_user_switch, find_free_ports, get_start_time, reap, wait_until

FOLDER = Path(__file__).parent
HOST = "localhost"
TIMEOUT_SECONDS = 180.0
PAIRS = (
    (NAME_NODE, STANDBY_NAME_NODE, "org.apache.hadoop.hdfs.tools.DFSHAAdmin"),
    (RESOURCE_MANAGER, STANDBY_RESOURCE_MANAGER, "org.apache.hadoop.yarn.client.cli.RMAdminCLI"),
)
"""Each pair of daemons, with the program that makes one of them the active one."""


@dataclass(frozen=True)
class Cluster:
    """A Hadoop cluster.

    Attributes:
        home: The folder with all its files.
        ports: The number of each port, by `daemon.port`, such as "namenode.rpc".
        kdc: The KDC of a cluster that requires Kerberos.
        node_environment: Environment variables of NodeManagers, which containers inherit.
        hosts: The host of each daemon, by its name; without an entry, this machine.
    """

    home: Path
    ports: dict[str, int]
    kdc: Kdc | None = None
    node_environment: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def create(
        cls, home: Path, kerberos: bool = False, standbys: Sequence[Daemon] = (),
        properties: Mapping[str, Properties] = MappingProxyType({}),
    ) -> Cluster:  # fmt: skip
        """Create and format a cluster in the empty folder `home`. Only its KDC runs then.

        Args:
            home: The folder.
            kerberos: Whether it requires Kerberos.
            standbys: The second daemons of its pairs, of `config.STANDBYS`.
            properties: Further properties, by site.
        """
        if home.exists() and any(home.iterdir()):
            raise SystemExit(f"{home} has files, but no complete cluster; remove the folder, or choose another.")
        fetch_jars()
        home.mkdir(parents=True, exist_ok=True)
        ports = find_free_ports([*config.list_ports(standbys), *(["kdc"] if kerberos else [])])
        cluster = cls._build(home, ports)
        if cluster.kdc:
            cluster.kdc.create()
        properties = {**(cluster.kdc.build_properties() if cluster.kdc else {}), **properties}
        nodes = cluster._create_node_folder()
        for daemon in (None, *cluster.daemons.values()):
            files = nodes if isinstance(daemon, NodeManager) else home
            for name, text in config.build_files(daemon, files, cluster.addresses, properties).items():
                file = cluster.conf_dir(daemon) / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
        (home / "log").mkdir()
        (home / "pid").mkdir()
        cluster._start_kdc()  # the NameNode logs in to format, too
        cluster._run(NAME_NODE, "-format", "-force", "-nonInteractive")
        if STANDBY_NAME_NODE in standbys:
            shutil.copytree(home / NAME_NODE.name, home / STANDBY_NAME_NODE.name)
        loopback = dict.fromkeys(
            ("spark.yarn.appMasterEnv.SPARK_LOCAL_IP", "spark.executorEnv.SPARK_LOCAL_IP"), "127.0.0.1"
        )
        (cluster.conf_dir(None) / "spark-defaults.conf").write_text(config.build_local_spark_defaults(loopback))
        (home / "env.sh").write_text(cluster.build_environment_script())
        (home / "cluster.json").write_text(json.dumps({"ports": cluster.ports}))
        return cluster

    @classmethod
    def open(cls, home: Path) -> Cluster:
        """Return the cluster that was created in `home`."""
        stored = json.loads((home / "cluster.json").read_text())
        return replace(cls._build(home, stored["ports"]), hosts=stored.get("hosts", {}))

    @classmethod
    @contextlib.contextmanager
    def launch(
        cls, home: Path, kerberos: bool = False, standbys: Sequence[Daemon] = (),
        properties: Mapping[str, Properties] = MappingProxyType({}), node_environment: Mapping[str, str] | None = None,
    ) -> Iterator[Cluster]:  # fmt: skip
        """Run a new cluster in the empty folder `home` while the context is active; it is healthy on entry.

        The first daemon of each pair is the active one.
        """
        cluster = replace(cls.create(home, kerberos, standbys, properties), node_environment=node_environment or {})
        try:
            cluster.start()
            for first, second, _ in PAIRS:
                if second in standbys:
                    cluster.activate(first.name)
            cluster.wait()
            yield cluster
        finally:
            cluster.stop()
            if (nodes := home / "nodes").is_symlink():
                target = nodes.readlink()
                nodes.unlink()
                shutil.move(target, nodes)

    @classmethod
    def _build(cls, home: Path, ports: dict[str, int]) -> Cluster:
        return cls(home, ports, Kdc(home / "kdc", ports["kdc"]) if "kdc" in ports else None)

    @property
    def daemons(self) -> dict[str, Daemon]:
        """The daemons, by name."""
        others = (*STANDBYS, *SPARE_NODES)
        return DAEMONS | {daemon.name: daemon for daemon in others if f"{daemon.name}.http" in self.ports}

    @property
    def addresses(self) -> dict[str, str]:
        """Host and port of each port, by `daemon.port`."""
        return {name: f"{self.hosts.get(name.partition('.')[0], HOST)}:{port}" for name, port in self.ports.items()}

    def get_url(self, port: str) -> str:
        """Return the URL of the REST interface at a port, such as "resourcemanager.http"."""
        return f"http://{self.addresses[port]}"

    @property
    def storage(self) -> str:
        """The URI of the storage for datasets, models and runs."""
        return f"{config.get_storage(self.addresses)}/trainyard"

    @property
    def warning(self) -> str:
        """What other users of this machine can do with the cluster, "" with Kerberos."""
        if self.kdc:
            return ""
        return (
            f"WARNING: every user of this machine can run commands on this cluster as {USER} or {CONTAINER_USER}, and "
            "change all of its HDFS: without Kerberos, Hadoop believes whatever name a client gives. On a machine that "
            "others use, create it with --kerberos."
        )

    def build_environment(self) -> dict[str, str]:
        """Return the environment variables to submit to this cluster, with Airflow's connections.

        All of its nodes are this machine, so that they share its directories.
        """
        spark = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster", "queue": "etl"}}
        yarn = {"conn_type": "trainyard", "extra": {"storage": self.storage, "shared": True}}
        return {
            "HADOOP_CONF_DIR": str(self.conf_dir(None)),
            "SPARK_CONF_DIR": str(self.conf_dir(None)),
            "SPARK_SUBMIT_OPTS": START_QUICKLY,
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
            "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps(yarn),
        } | ({**self.kdc.environment, "KRB5CCNAME": str(self.kdc.tickets)} if self.kdc else {})

    def build_environment_script(self) -> str:
        """Return a shell script that exports the environment."""
        return "".join(f"export {name}='{value}'\n" for name, value in self.build_environment().items())

    def start(self) -> None:
        """Start the daemons that do not run."""
        self._start_kdc()
        if self.warning:
            print(self.warning)
        if not self._switches_user:
            print(f"NodeManagers run as {USER}, who submits: another user needs root, setpriv and no Kerberos.")
        for name, daemon in self.daemons.items():
            self._start(name, self.build_command(daemon), self.build_daemon_environment(daemon))

    def activate(self, name: str) -> None:
        """Make one daemon of a pair the active one, as soon as it answers; the other must not be active."""
        program = next(program for first, second, program in PAIRS if name in (first.name, second.name))
        command = [
            "java", *START_QUICKLY.split(), "-cp", f"{self.conf_dir(None)}:{fetch_jars()}/*", program,
            "-transitionToActive", "--forceactive", name,
        ]  # fmt: skip

        def succeeds() -> bool:
            environment = self.build_daemon_environment(self.daemons[name])
            return subprocess.run(command, env=environment, cwd=self.home, capture_output=True).returncode == 0

        if not wait_until(TIMEOUT_SECONDS, succeeds):
            raise SystemExit(f"{name} does not become active; see {self.home}/log/{name}.log")

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a daemon a signal and wait until it has ended; after 10 seconds, send SIGKILL."""
        pid = self.get_pid(name)
        if pid is None:
            return
        os.kill(pid, number)
        # A NodeManager that searches for its ResourceManager ignores SIGTERM for minutes.
        if not wait_until(10, lambda: self.get_pid(name) is None):
            os.kill(pid, signal.SIGKILL)
            wait_until(TIMEOUT_SECONDS, lambda: self.get_pid(name) is None)

    def stop(self) -> None:
        """End all daemons and the processes that they started."""
        for name in (*reversed(self.daemons), "kdc"):
            self.kill(name, signal.SIGTERM)

    def get_pid(self, name: str) -> int | None:
        """Return the process id of a daemon, None if it does not run."""
        file = self.home / "pid" / name
        if not file.exists():
            return None
        pid, started = file.read_text().split()
        reap(int(pid))
        return int(pid) if get_start_time(int(pid)) == started else None

    def wait(self) -> None:
        """Wait until every DataNode and NodeManager has registered, the latter with their labels.

        Raises:
            SystemExit: A daemon on this machine has ended, or `TIMEOUT_SECONDS` have passed.
        """
        end, problem = time.monotonic() + TIMEOUT_SECONDS, ""
        while time.monotonic() < end:
            here = [name for name in self.daemons if name not in self.hosts]
            if ended := [name for name in here if self.get_pid(name) is None]:
                raise SystemExit(f"{ended[0]} has ended; see {self.home}/log/{ended[0]}.log")
            problem = self.find_problem()
            if not problem:
                return
            time.sleep(0.3)
        raise SystemExit(f"the cluster is not up after {TIMEOUT_SECONDS:.0f} s: {problem}; see {self.home}/log")

    def find_problem(self) -> str:
        """Return what is missing until the cluster is up, an empty string if nothing is."""
        try:
            url, beans = self.get_url("namenode.http"), "Hadoop:service=NameNode,name="
            state = web.get_bean(url, f"{beans}FSNamesystemState", self._auth)
            if state["NumLiveDataNodes"] < len(DATA_NODES):
                return f"{state['NumLiveDataNodes']} of {len(DATA_NODES)} DataNodes"
            if mode := web.get_bean(url, f"{beans}NameNodeInfo", self._auth)["Safemode"]:
                return str(mode)
            if not self._add_directories():
                return "no active NameNode"
            self._add_label()
            nodes = (self.query_yarn("nodes", states="RUNNING")["nodes"] or {}).get("node", [])
            labeled = [node for node in nodes if node.get("nodeLabels") == [PARTITION]]
        except (requests.RequestException, IndexError) as error:
            return f"no answer yet ({error})"
        managers = [daemon for daemon in self.daemons.values() if isinstance(daemon, NodeManager)]
        expected = sum(manager.partition is not None for manager in managers)
        if len(nodes) < len(managers) or len(labeled) < expected:
            return f"{len(nodes)} of {len(managers)} nodes, {len(labeled)} of {expected} with their label"
        return ""

    def query_yarn(self, path: str, **query: str) -> Any:
        """Return the answer of the active ResourceManager's REST interface at `path`."""
        return web.get(f"{self._get_active_url()}/ws/v1/cluster/{path}", query | {"user.name": USER}, self._auth)

    def _get_active_url(self) -> str:
        """Return the URL of the active ResourceManager; of the first, if none of a pair is."""
        names = [name for name in self.daemons if name in (RESOURCE_MANAGER.name, STANDBY_RESOURCE_MANAGER.name)]
        for name in names[1:]:
            with contextlib.suppress(requests.RequestException):
                url = self.get_url(f"{name}.http")
                info = web.get(f"{url}/ws/v1/cluster/info", {"user.name": USER}, self._auth)["clusterInfo"]
                if info["haState"] == "ACTIVE":
                    return url
        return self.get_url(f"{names[0]}.http")

    def _start_kdc(self) -> None:
        if self.kdc:
            self._start("kdc", self.kdc.command, self._base_environment())
            if not wait_until(TIMEOUT_SECONDS, self.kdc.log_in):
                raise SystemExit(f"the KDC issues no ticket; see {self.home}/log/kdc.log")

    def _start(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        if self.get_pid(name) is not None:
            return
        with (self.home / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, env=environment, cwd=self.home, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        (self.home / "pid" / name).write_text(f"{process.pid} {get_start_time(process.pid)}")

    def build_daemon_environment(self, daemon: Daemon) -> dict[str, str]:
        """Return the environment of a daemon, which containers inherit from NodeManagers: no user's ticket is in it."""
        if isinstance(daemon, NodeManager):
            return self._base_environment() | dict(self.node_environment)
        in_hdfs = daemon in (NAME_NODE, STANDBY_NAME_NODE, *DATA_NODES)
        return self._base_environment() | ({"HADOOP_USER_NAME": SUPERUSER} if in_hdfs and not self.kdc else {})

    def _base_environment(self) -> dict[str, str]:
        java = Path(shutil.which("java") or "java").resolve().parent.parent
        excluded = ("HADOOP_", "YARN_", "HDFS_", "KRB5")
        own = {name: value for name, value in os.environ.items() if not name.startswith(excluded)}
        return {"JAVA_HOME": str(java), **own, **(self.kdc.environment if self.kdc else {}), "KRB5CCNAME": os.devnull}

    def _create_node_folder(self) -> Path:
        """Create the folder of the NodeManagers' files, outside of a home that `CONTAINER_USER` does not reach."""
        nodes = self.home / "nodes"
        if all(folder.stat().st_mode & stat.S_IXOTH for folder in (self.home, *self.home.parents)):
            nodes.mkdir()
        else:
            nodes.symlink_to(tempfile.mkdtemp(prefix="trainyard-nodes-"))
            nodes.chmod(0o755)
        if self._switches_user:
            shutil.chown(nodes, CONTAINER_USER)
        return nodes.resolve()

    @property
    def _switches_user(self) -> bool:
        """Whether NodeManagers run as `CONTAINER_USER`."""
        return not self.kdc and os.geteuid() == 0 and shutil.which("setpriv") is not None

    def _add_directories(self) -> bool:
        """Create the directories of an administrator; return whether there is a NameNode that can.

        With Kerberos the user who submits is the superuser, and nothing is created.
        """
        if self.kdc:
            return True
        status = "Hadoop:service=NameNode,name=NameNodeStatus"
        pair = (NAME_NODE.name, STANDBY_NAME_NODE.name)
        urls = [self.get_url(f"{name}.http") for name in self.daemons if name in pair]
        active = next((url for url in urls if web.get_bean(url, status, self._auth)["State"] == "active"), None)
        for path, (owner, mode) in DIRECTORIES.items() if active else ():
            for operation in ({"op": "MKDIRS", "permission": str(mode)}, {"op": "SETOWNER", "owner": owner}):
                web.put(f"{active}/webhdfs/v1{path}", operation | {"user.name": SUPERUSER})
        return active is not None

    def _add_label(self) -> None:
        labels = self.query_yarn("get-node-labels").get("nodeLabelInfo") or []
        if PARTITION not in [label["name"] for label in (labels if isinstance(labels, list) else [labels])]:
            url = f"{self._get_active_url()}/ws/v1/cluster/add-node-labels"
            body: Any = {"nodeLabelInfo": [{"name": PARTITION, "exclusivity": True}]}
            web.post(url, USER, body, self._auth)

    @property
    def _auth(self) -> AuthBase | None:
        """The authentication of requests: the user's ticket, if the cluster requires Kerberos."""
        return self.kdc.build_auth() if self.kdc else None

    def conf_dir(self, daemon: Daemon | None) -> Path:
        """Return the folder of a daemon's configuration files, or of those of clients."""
        return self.home / "conf" / (daemon.name if daemon else "client")

    def build_command(self, daemon: Daemon, *arguments: str) -> list[str]:
        """Return the command of a daemon."""
        as_user = build_user_switch(CONTAINER_USER) if isinstance(daemon, NodeManager) and self._switches_user else []
        return [
            *as_user,
            shutil.which("java") or "java",
            *config.build_java_arguments(daemon, self.conf_dir(daemon), fetch_jars(), self.home / "log"),
            *arguments,
        ]

    def _run(self, daemon: Daemon, *arguments: str) -> None:
        with (self.home / "log" / f"{daemon.name}.log").open("ab") as log:
            command = self.build_command(daemon, *arguments)
            environment = self.build_daemon_environment(daemon)
            subprocess.run(command, env=environment, cwd=self.home, stdout=log, stderr=log, check=True)
