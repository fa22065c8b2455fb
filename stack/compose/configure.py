"""Writes the configuration of the Hadoop in docker-compose.yaml: `python -m stack.compose.configure DIRECTORY`.

A folder for each daemon, with `java.args` to start it by, and one for clients. Every daemon is a container that
the others know by the daemon's name below `localhost`, and listens on Hadoop's own ports. A browser takes all names
there for its own machine, and finds the pages that are published: links of Airflow's and YARN's lead there as well.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from stack.hadoop import config
from stack.hadoop.config import Daemon, NodeManager

HOME = Path("/var/lib/trainyard")
JARS = Path("/opt/hadoop")
CONF = Path("/etc/hadoop")
PYSPARK = Path("/opt/venv/lib/python3.11/site-packages/pyspark")
EVENTS = "hdfs://namenode.localhost:8020/spark-events"
DAEMONS = {name: daemon for name, daemon in config.DAEMONS.items() if name != "gpunode2"}
ADDRESSES = {
    f"{daemon.name}.{port}": f"{daemon.name}.localhost:{number}"
    for daemon in DAEMONS.values()
    for port, number in daemon.ports.items()
} | {"gpunode1.http": "gpunode1.localhost:8043"}  # a browser's machine has one port 8042, and node1 is there


def files(gpus: int) -> dict[str, str]:
    """All files by their names, where the nodes of the partition have so many GPUs each."""
    found = {f"client/{name}": text for name, text in config.files(None, HOME, ADDRESSES).items()}
    found["client/spark-defaults.conf"] = config.spark_defaults(
        PYSPARK,
        {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": EVENTS,
            "spark.history.fs.logDirectory": EVENTS,
            "spark.yarn.historyServer.address": "history.localhost:18080",
        },
    )
    for daemon in DAEMONS.values():
        sized = replace(daemon, gpus=gpus) if isinstance(daemon, NodeManager) and daemon.gpus else daemon
        found |= _daemon(sized)
    return found


def write(directory: Path, gpus: int) -> None:
    """Write all of them below `directory`."""
    for name, text in files(gpus).items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _daemon(daemon: Daemon) -> dict[str, str]:
    arguments = config.java(daemon, CONF / daemon.name, JARS, HOME)
    own = config.files(daemon, HOME, ADDRESSES) | {"java.args": "\n".join(arguments) + "\n"}
    return {f"{daemon.name}/{name}": text for name, text in own.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--gpus", type=int, default=2, help="GPUs of each node of the partition")
    chosen = parser.parse_args()
    write(chosen.directory, chosen.gpus)


if __name__ == "__main__":
    main()
