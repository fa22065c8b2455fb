"""The configuration of a small Hadoop: its daemons and their configuration files.

It runs as processes of one machine (`stack.hadoop.cluster`) or as containers (`stack.compose.configure`), which differ
in where a daemon's files are and at which address it listens.

There are one NameNode, two DataNodes, one ResourceManager (CapacityScheduler) and three NodeManagers: one ordinary node
and two in the exclusive partition `gpu`. The queue `etl` is open to all users and has only ordinary nodes; the queue
`train` may use the partition.
"""

from __future__ import annotations

import getpass
import importlib.util
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from xml.sax.saxutils import escape

PARTITION = "gpu"
QUEUES = ("etl", "train")
USER = getpass.getuser()
"""The user who submits; no superuser of HDFS, and another one than that of containers."""
SUPERUSER = "hdfs"
"""The superuser of HDFS, without Kerberos: NameNodes and DataNodes run in its name."""
CONTAINER_USER = "nobody"
"""The user of this machine that NodeManagers and their containers run as, without Kerberos."""
DIRECTORIES = {"/trainyard": (USER, 755), f"/user/{USER}": (USER, 755), "/logs": (CONTAINER_USER, 1777)}
"""Owners and modes of the directories that an administrator creates on HDFS: storage, homes and aggregated logs."""
START_QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options for JVMs of small jobs, which take half the time on two cores without the optimizing compiler."""
OPENED = ("java.lang", "java.util")
"""Packages of Java that Hadoop before 3.4 reads by reflection, which Java 17 allows only where they are opened."""
_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager"
_FAILOVER = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"

Properties = dict[str, object]


@dataclass(frozen=True)
class Daemon:
    """A daemon: its main class, heap in MB, and the ports it listens on, with Hadoop's default numbers."""

    name: str
    main: str
    heap: int
    ports: Mapping[str, int]


@dataclass(frozen=True)
class NodeManager(Daemon):
    """A node of YARN: the memory in MB, cores and GPUs that it offers, and its partition."""

    memory: int = 6144
    cores: int = 4
    gpus: int = 0
    partition: str | None = None


def _build_data_node(name: str) -> Daemon:
    ports = {"data": 9866, "http": 9864, "ipc": 9867}
    return Daemon(name, "org.apache.hadoop.hdfs.server.datanode.DataNode", 128, ports)


def _build_node_manager(name: str, gpus: int = 0) -> NodeManager:
    main = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
    ports = {"ipc": 8041, "localizer": 8040, "http": 8042, "collector": 8048}
    return NodeManager(name, main, 192, ports, gpus=gpus, partition=PARTITION if gpus else None)


def _build_name_node(name: str) -> Daemon:
    return Daemon(name, "org.apache.hadoop.hdfs.server.namenode.NameNode", 192, {"rpc": 8020, "http": 9870})


NAME_NODE = _build_name_node("namenode")
DATA_NODES = (_build_data_node("datanode1"), _build_data_node("datanode2"))


def _build_resource_manager(name: str) -> Daemon:
    ports = {"client": 8032, "scheduler": 8030, "tracker": 8031, "admin": 8033, "http": 8088}
    return Daemon(name, f"{_MANAGER}.ResourceManager", 256, ports)


RESOURCE_MANAGER = _build_resource_manager("resourcemanager")
STANDBY_NAME_NODE = _build_name_node("namenode2")
STANDBY_RESOURCE_MANAGER = _build_resource_manager("resourcemanager2")
STANDBYS = (STANDBY_NAME_NODE, STANDBY_RESOURCE_MANAGER)
"""The second daemons of pairs, between which a failover is by hand: `Cluster.activate`."""
NAMESERVICE = "trainyard"
"""The name of HDFS with a pair of NameNodes."""
NODE_MANAGERS = (
    _build_node_manager("node1"),
    _build_node_manager("gpunode1", gpus=2),
    _build_node_manager("gpunode2", gpus=2),
)
SPARE_NODES = (_build_node_manager("node2"), _build_node_manager("gpunode3", gpus=2))
"""Further nodes, which a cluster of several hosts may have (`stack.hosts`)."""
DAEMONS: dict[str, Daemon] = {
    daemon.name: daemon for daemon in (NAME_NODE, *DATA_NODES, RESOURCE_MANAGER, *NODE_MANAGERS)
}

Addresses = Mapping[str, str]
"""Host and port, as "localhost:8020", by `daemon.port`, such as "namenode.rpc"."""


def list_ports(standbys: Sequence[Daemon] = ()) -> list[str]:
    """Return the names of all ports, as `daemon.port`, with those of the second daemons of pairs."""
    return [f"{daemon.name}.{port}" for daemon in (*DAEMONS.values(), *standbys) for port in daemon.ports]


def get_storage(addresses: Addresses) -> str:
    """Return the URI of HDFS."""
    return f"hdfs://{NAMESERVICE if _has(STANDBY_NAME_NODE, addresses) else addresses['namenode.rpc']}"


def build_files(
    daemon: Daemon | None, home: Path, addresses: Addresses, additional: Mapping[str, Properties] = MappingProxyType({})
) -> dict[str, str]:
    """Return the texts of a daemon's configuration files by name.

    Args:
        daemon: The daemon, None for clients.
        home: The folder in which daemons store their files.
        addresses: The address of each port.
        additional: Further properties, by site.
    """
    sites: dict[str, Properties] = {
        "core-site": {"fs.defaultFS": get_storage(addresses), "hadoop.tmp.dir": home / "tmp"},
        "hdfs-site": _hdfs_site(daemon, home, addresses)
        | (_data_node_site(daemon, home, addresses) if daemon in DATA_NODES else {}),
        "yarn-site": _yarn_site(home, addresses)
        | (_node_manager_site(daemon, home, addresses) if isinstance(daemon, NodeManager) else {}),
        "resource-types": {
            "yarn.resource-types": "yarn.io/gpu",
            "yarn.resource-types.yarn.io/gpu.maximum-allocation": 4,
        },
    }
    if daemon in (RESOURCE_MANAGER, STANDBY_RESOURCE_MANAGER):
        sites["capacity-scheduler"] = _build_queues()
        sites["yarn-site"]["yarn.resourcemanager.ha.id"] = daemon.name
    if isinstance(daemon, NodeManager) and daemon.gpus:
        sites["node-resources"] = {"yarn.nodemanager.resource-type.yarn.io/gpu": daemon.gpus}
    # NameNode and DataNode do not start without these folders, which are not in their jar.
    pages = {f"webapps/{page}/empty": "" for page in ("hdfs", "datanode", "static")}
    return (
        {f"{site}.xml": _format_xml(properties | additional.get(site, {})) for site, properties in sites.items()}
        | {"log4j.properties": _LOG4J}
        | pages
    )


def build_java_arguments(daemon: Daemon, conf: Path, jars: Path, log: Path) -> list[str]:
    """Return the arguments of the `java` command that runs a daemon.

    Args:
        daemon: The daemon.
        conf: The folder of its configuration files.
        jars: The folder of Hadoop's jars.
        log: The folder for logs.
    """
    return [
        f"-Xmx{daemon.heap}m", *START_QUICKLY.split(), "-XX:-UsePerfData",
        *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
        f"-Dhadoop.log.dir={log}", "-cp", f"{conf}:{jars}/*", daemon.main,
    ]  # fmt: skip


def build_spark_defaults(pyspark: Path, additional: Mapping[str, str]) -> str:
    """Return the spark-defaults.conf of a client, where pyspark is at the same path on each node."""
    settings = {
        "spark.yarn.jars": f"local:{pyspark}/jars/*",
        "spark.driver.extraJavaOptions": START_QUICKLY,
        "spark.executor.extraJavaOptions": START_QUICKLY,
    }
    return "".join(f"{name} {value}\n" for name, value in {**settings, **additional}.items())


def build_local_spark_defaults(additional: Mapping[str, str]) -> str:
    """Return the defaults of each submission: Spark's jars, and a stub of nvidia-smi, are on each node."""
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or not pyspark.submodule_search_locations:
        raise SystemExit("pyspark is not installed for this Python; use that of the environment (.venv/bin/python).")
    path = f"{Path(__file__).parent / 'bin'}:{os.defpath}:/usr/local/bin"
    return build_spark_defaults(
        Path(pyspark.submodule_search_locations[0]), {**additional, "spark.executorEnv.PATH": path}
    )


def _get_host(address: str) -> str:
    return address.partition(":")[0]


def _has(daemon: Daemon, addresses: Addresses) -> bool:
    return any(name.startswith(f"{daemon.name}.") for name in addresses)


def _name_node_addresses(daemon: Daemon | None, home: Path, addresses: Addresses) -> Properties:
    prefix = "dfs.namenode"
    if not _has(STANDBY_NAME_NODE, addresses):
        return {f"{prefix}.{port}-address": addresses[f"{NAME_NODE.name}.{port}"] for port in NAME_NODE.ports}
    pair = (NAME_NODE, STANDBY_NAME_NODE)
    return {
        "dfs.nameservices": NAMESERVICE,
        f"dfs.ha.namenodes.{NAMESERVICE}": ",".join(one.name for one in pair),
        **({"dfs.ha.namenode.id": daemon.name} if daemon in pair else {}),
        "dfs.ha.fencing.methods": "shell(/bin/true)",
        f"dfs.client.failover.proxy.provider.{NAMESERVICE}": _FAILOVER,
        f"{prefix}.shared.edits.dir": (home / "edits").as_uri(),
        **{
            f"{prefix}.{port}-address.{NAMESERVICE}.{one.name}": addresses[f"{one.name}.{port}"]
            for one in pair
            for port in one.ports
        },
    }


def _hdfs_site(daemon: Daemon | None, home: Path, addresses: Addresses) -> Properties:
    own = daemon if daemon == STANDBY_NAME_NODE else NAME_NODE
    return _name_node_addresses(daemon, home, addresses) | {
        "dfs.permissions.enabled": "true",
        "dfs.replication": len(DATA_NODES),
        "dfs.namenode.name.dir": (home / own.name).as_uri(),
        # The address of a container may not have a name yet when its DataNode registers.
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": 0,
        "dfs.namenode.safemode.min.datanodes": 1,
        "dfs.namenode.heartbeat.recheck-interval": 2000,
        "dfs.heartbeat.interval": 1,
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": 20,
    }


def _data_node_site(daemon: Daemon, home: Path, addresses: Addresses) -> Properties:
    return {
        "dfs.datanode.data.dir": (home / daemon.name).as_uri(),
        "dfs.datanode.hostname": _get_host(addresses[f"{daemon.name}.data"]),
        "dfs.datanode.address": addresses[f"{daemon.name}.data"],
        "dfs.datanode.http.address": addresses[f"{daemon.name}.http"],
        "dfs.datanode.ipc.address": addresses[f"{daemon.name}.ipc"],
    }


def _yarn_site(home: Path, addresses: Addresses) -> Properties:
    manager = "yarn.resourcemanager"
    return _resource_manager_addresses(addresses) | {
        f"{manager}.scheduler.class": f"{_MANAGER}.scheduler.capacity.CapacityScheduler",
        f"{manager}.recovery.enabled": "true",
        f"{manager}.work-preserving-recovery.enabled": "true",
        f"{manager}.work-preserving-recovery.scheduling-wait-ms": 2000,
        f"{manager}.store.class": f"{_MANAGER}.recovery.FileSystemRMStateStore",
        f"{manager}.fs.state-store.uri": (home / "resourcemanager").as_uri(),
        f"{manager}.am.max-attempts": 2,
        f"{manager}.nodemanagers.heartbeat-interval-ms": 500,
        "yarn.nm.liveness-monitor.expiry-interval-ms": 40000,
        "yarn.am.liveness-monitor.expiry-interval-ms": 120000,
        "yarn.scheduler.minimum-allocation-mb": 256,
        "yarn.scheduler.maximum-allocation-mb": 6144,
        "yarn.scheduler.maximum-allocation-vcores": 4,
        "yarn.node-labels.enabled": "true",
        "yarn.node-labels.configuration-type": "distributed",
        "yarn.node-labels.fs-store.root-dir": (home / "labels").as_uri(),
        "yarn.acl.enable": "true",
        "yarn.admin.acl": USER,
        "yarn.log-aggregation-enable": "true",
        "yarn.log-aggregation.retain-seconds": 86400,
        "yarn.nodemanager.remote-app-log-dir": "/logs",
    }


def _resource_manager_addresses(addresses: Addresses) -> Properties:
    manager = "yarn.resourcemanager"
    kinds = {
        "address": "client", "scheduler.address": "scheduler", "resource-tracker.address": "tracker",
        "admin.address": "admin", "webapp.address": "http",
    }  # fmt: skip
    if not _has(STANDBY_RESOURCE_MANAGER, addresses):
        host = _get_host(addresses[f"{RESOURCE_MANAGER.name}.client"])
        one = {f"{manager}.{kind}": addresses[f"{RESOURCE_MANAGER.name}.{port}"] for kind, port in kinds.items()}
        return {f"{manager}.hostname": host, **one}
    pair = (RESOURCE_MANAGER, STANDBY_RESOURCE_MANAGER)
    return {
        f"{manager}.ha.enabled": "true",
        f"{manager}.ha.automatic-failover.enabled": "false",
        f"{manager}.ha.rm-ids": ",".join(daemon.name for daemon in pair),
        f"{manager}.cluster-id": "trainyard",
        **{f"{manager}.hostname.{daemon.name}": _get_host(addresses[f"{daemon.name}.client"]) for daemon in pair},
        **{
            f"{manager}.{kind}.{daemon.name}": addresses[f"{daemon.name}.{port}"]
            for daemon in pair
            for kind, port in kinds.items()
        },
    }


def _node_manager_site(daemon: NodeManager, home: Path, addresses: Addresses) -> Properties:
    node, host = "yarn.nodemanager", _get_host(addresses[f"{daemon.name}.ipc"])
    properties: Properties = {
        f"{node}.hostname": host,
        f"{node}.bind-host": host,
        f"{node}.address": addresses[f"{daemon.name}.ipc"],
        f"{node}.localizer.address": addresses[f"{daemon.name}.localizer"],
        f"{node}.webapp.address": addresses[f"{daemon.name}.http"],
        f"{node}.collector-service.address": addresses[f"{daemon.name}.collector"],
        f"{node}.local-dirs": home / daemon.name / "local",
        f"{node}.log-dirs": home / daemon.name / "logs",
        f"{node}.recovery.enabled": "true",
        f"{node}.recovery.dir": home / daemon.name / "recovery",
        f"{node}.resource.memory-mb": daemon.memory,
        f"{node}.resource.cpu-vcores": daemon.cores,
        f"{node}.pmem-check-enabled": "true",
        f"{node}.vmem-check-enabled": "false",
        # With the default, true, the limit is left to cgroups, and YARN's own check does nothing.
        f"{node}.resource.memory.enforced": "false",
        f"{node}.container-monitor.interval-ms": 1000,
        f"{node}.resource-monitor.interval-ms": 1000,
        f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": 99,
        f"{node}.node-labels.provider": "config",
        f"{node}.node-labels.provider.fetch-interval-ms": 2000,
        f"{node}.node-labels.resync-interval-ms": 2000,
    }
    if daemon.partition:
        properties[f"{node}.node-labels.provider.configured-node-partition"] = daemon.partition
    return properties


def _build_queues() -> Properties:
    root = "yarn.scheduler.capacity.root"
    calculator = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
    properties: Properties = {
        "yarn.scheduler.capacity.maximum-am-resource-percent": 0.5,
        "yarn.scheduler.capacity.resource-calculator": calculator,
        f"{root}.queues": ",".join(QUEUES),
        f"{root}.capacity": 100,
        f"{root}.acl_submit_applications": " ",
        f"{root}.acl_administer_queue": " ",
        f"{root}.accessible-node-labels": PARTITION,
        f"{root}.etl.accessible-node-labels": " ",
        f"{root}.train.accessible-node-labels": PARTITION,
    }
    for labeled in (root, f"{root}.train"):
        properties[f"{labeled}.accessible-node-labels.{PARTITION}.capacity"] = 100
        properties[f"{labeled}.accessible-node-labels.{PARTITION}.maximum-capacity"] = 100
    for queue in QUEUES:
        properties |= {
            f"{root}.{queue}.capacity": 100 // len(QUEUES),
            f"{root}.{queue}.maximum-capacity": 100,
            f"{root}.{queue}.user-limit-factor": 10,
            f"{root}.{queue}.acl_submit_applications": "*" if queue == "etl" else USER,
            f"{root}.{queue}.acl_administer_queue": USER,
        }
    return properties


def _format_xml(properties: Properties) -> str:
    entries = "".join(
        f"  <property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>\n"
        for name, value in properties.items()
    )
    return f'<?xml version="1.0"?>\n<configuration>\n{entries}</configuration>\n'


_LOG4J = """log4j.rootLogger=INFO,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""
