"""The configuration of a small Hadoop: which daemons there are, and what each is told. Pure functions.

It runs as processes of one machine (`stack.hadoop.cluster`) or as containers (`stack.compose.configure`): what
differs is where each daemon keeps its files, and at which address it listens.

One NameNode, two DataNodes, one ResourceManager (CapacityScheduler), three NodeManagers: one ordinary
node and two in the exclusive partition `gpu`. Queue `etl` is open to all and has ordinary nodes alone;
queue `train` may use the partition.
"""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from xml.sax.saxutils import escape

PARTITION = "gpu"
QUEUES = ("etl", "train")
USER = getpass.getuser()
START_QUICKLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs of small jobs: on two cores the optimizing compiler costs more than it gains, half the time of a job."""
_MANAGER = "org.apache.hadoop.yarn.server.resourcemanager"

Properties = dict[str, object]


@dataclass(frozen=True)
class Daemon:
    """One process: its main class, heap in MB, and the ports it listens on, each with Hadoop's own number for it."""

    name: str
    main: str
    heap: int
    ports: Mapping[str, int]


@dataclass(frozen=True)
class NodeManager(Daemon):
    """A node of YARN's: MB, cores and GPUs that it offers, and its partition."""

    memory: int = 6144
    cores: int = 4
    gpus: int = 0
    partition: str | None = None


def _data_node(name: str) -> Daemon:
    ports = {"data": 9866, "http": 9864, "ipc": 9867}
    return Daemon(name, "org.apache.hadoop.hdfs.server.datanode.DataNode", 128, ports)


def _node_manager(name: str, gpus: int = 0) -> NodeManager:
    main = "org.apache.hadoop.yarn.server.nodemanager.NodeManager"
    ports = {"ipc": 8041, "localizer": 8040, "http": 8042, "collector": 8048}
    return NodeManager(name, main, 192, ports, gpus=gpus, partition=PARTITION if gpus else None)


NAME_NODE = Daemon("namenode", "org.apache.hadoop.hdfs.server.namenode.NameNode", 192, {"rpc": 8020, "http": 9870})
DATA_NODES = (_data_node("datanode1"), _data_node("datanode2"))
RESOURCE_MANAGER = Daemon(
    "resourcemanager",
    f"{_MANAGER}.ResourceManager",
    256,
    {"client": 8032, "scheduler": 8030, "tracker": 8031, "admin": 8033, "http": 8088},
)
NODE_MANAGERS = (_node_manager("node1"), _node_manager("gpunode1", gpus=2), _node_manager("gpunode2", gpus=2))
DAEMONS: dict[str, Daemon] = {
    daemon.name: daemon for daemon in (NAME_NODE, *DATA_NODES, RESOURCE_MANAGER, *NODE_MANAGERS)
}

Addresses = Mapping[str, str]
"""Host and port, as "localhost:8020", by `daemon.port`, such as "namenode.rpc"."""


def port_names() -> list[str]:
    return [f"{daemon.name}.{port}" for daemon in DAEMONS.values() for port in daemon.ports]


def files(
    daemon: Daemon | None, home: Path, addresses: Addresses, others: Mapping[str, Properties] = MappingProxyType({})
) -> dict[str, str]:
    """The configuration files of `daemon`, or of a client (None), by their names below its folder.

    `others` are properties beside these, by site.
    """
    sites: dict[str, Properties] = {
        "core-site": _core(home, addresses),
        "hdfs-site": _hdfs(home, addresses) | (_data(daemon, home, addresses) if daemon in DATA_NODES else {}),
        "yarn-site": _yarn(home, addresses)
        | (_node(daemon, home, addresses) if isinstance(daemon, NodeManager) else {}),
        "resource-types": {
            "yarn.resource-types": "yarn.io/gpu",
            "yarn.resource-types.yarn.io/gpu.maximum-allocation": 4,
        },
    }
    if daemon == RESOURCE_MANAGER:
        sites["capacity-scheduler"] = _queues()
    if isinstance(daemon, NodeManager) and daemon.gpus:
        sites["node-resources"] = {"yarn.nodemanager.resource-type.yarn.io/gpu": daemon.gpus}
    # The jar of the NameNode and DataNode lacks these folders, which they will not start without.
    pages = {f"webapps/{page}/empty": "" for page in ("hdfs", "datanode", "static")}
    return (
        {f"{site}.xml": _xml(properties | others.get(site, {})) for site, properties in sites.items()}
        | {"log4j.properties": _LOG4J}
        | pages
    )


def java(daemon: Daemon, conf: Path, jars: Path, log: Path) -> list[str]:
    """The arguments of the `java` that runs `daemon` by the files in `conf`."""
    return [
        f"-Xmx{daemon.heap}m", *START_QUICKLY.split(), "-XX:-UsePerfData",
        f"-Dhadoop.log.dir={log}", "-cp", f"{conf}:{jars}/*", daemon.main,
    ]  # fmt: skip


def spark_defaults(pyspark: Path, others: Mapping[str, str]) -> str:
    """The spark-defaults.conf of a client, where pyspark lies at the same path on each node."""
    settings = {
        "spark.yarn.jars": f"local:{pyspark}/jars/*",
        "spark.driver.extraJavaOptions": START_QUICKLY,
        "spark.executor.extraJavaOptions": START_QUICKLY,
    }
    return "".join(f"{name} {value}\n" for name, value in {**settings, **others}.items())


def _host(address: str) -> str:
    return address.partition(":")[0]


def _core(home: Path, addresses: Addresses) -> Properties:
    return {"fs.defaultFS": f"hdfs://{addresses['namenode.rpc']}", "hadoop.tmp.dir": home / "tmp"}


def _hdfs(home: Path, addresses: Addresses) -> Properties:
    return {
        "dfs.replication": len(DATA_NODES),
        "dfs.namenode.name.dir": (home / "namenode").as_uri(),
        "dfs.namenode.rpc-address": addresses["namenode.rpc"],
        "dfs.namenode.http-address": addresses["namenode.http"],
        # A container's address may not have a name yet when its DataNode asks to be let in.
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.namenode.safemode.extension": 0,
        "dfs.namenode.safemode.min.datanodes": 1,
        "dfs.namenode.heartbeat.recheck-interval": 2000,
        "dfs.heartbeat.interval": 1,
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": 20,
    }


def _data(daemon: Daemon, home: Path, addresses: Addresses) -> Properties:
    return {
        "dfs.datanode.data.dir": (home / daemon.name).as_uri(),
        "dfs.datanode.hostname": _host(addresses[f"{daemon.name}.data"]),
        "dfs.datanode.address": addresses[f"{daemon.name}.data"],
        "dfs.datanode.http.address": addresses[f"{daemon.name}.http"],
        "dfs.datanode.ipc.address": addresses[f"{daemon.name}.ipc"],
    }


def _yarn(home: Path, addresses: Addresses) -> Properties:
    manager = "yarn.resourcemanager"
    return {
        f"{manager}.hostname": _host(addresses["resourcemanager.client"]),
        f"{manager}.address": addresses["resourcemanager.client"],
        f"{manager}.scheduler.address": addresses["resourcemanager.scheduler"],
        f"{manager}.resource-tracker.address": addresses["resourcemanager.tracker"],
        f"{manager}.admin.address": addresses["resourcemanager.admin"],
        f"{manager}.webapp.address": addresses["resourcemanager.http"],
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


def _node(daemon: NodeManager, home: Path, addresses: Addresses) -> Properties:
    node, host = "yarn.nodemanager", _host(addresses[f"{daemon.name}.ipc"])
    found: Properties = {
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
        # True, the default, leaves it to cgroups: the check then sees a container too large and does nothing.
        f"{node}.resource.memory.enforced": "false",
        f"{node}.container-monitor.interval-ms": 1000,
        f"{node}.resource-monitor.interval-ms": 1000,
        f"{node}.disk-health-checker.max-disk-utilization-per-disk-percentage": 99,
        f"{node}.node-labels.provider": "config",
        f"{node}.node-labels.provider.fetch-interval-ms": 2000,
        f"{node}.node-labels.resync-interval-ms": 2000,
    }
    if daemon.partition:
        found[f"{node}.node-labels.provider.configured-node-partition"] = daemon.partition
    return found


def _queues() -> Properties:
    root = "yarn.scheduler.capacity.root"
    calculator = "org.apache.hadoop.yarn.util.resource.DominantResourceCalculator"
    found: Properties = {
        "yarn.scheduler.capacity.maximum-applications": 100,
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
        found[f"{labeled}.accessible-node-labels.{PARTITION}.capacity"] = 100
        found[f"{labeled}.accessible-node-labels.{PARTITION}.maximum-capacity"] = 100
    for queue in QUEUES:
        found |= {
            f"{root}.{queue}.capacity": 100 // len(QUEUES),
            f"{root}.{queue}.maximum-capacity": 100,
            f"{root}.{queue}.user-limit-factor": 10,
            f"{root}.{queue}.acl_submit_applications": "*" if queue == "etl" else USER,
            f"{root}.{queue}.acl_administer_queue": USER,
        }
    return found


def _xml(properties: Properties) -> str:
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
