"""Write the configuration of the Hadoop in docker-compose.yaml.

    python -m stack.compose.configure DIRECTORY

There is a folder for each daemon, with the arguments of its `java` command in `java.args`, and one for clients. Each
daemon is a container with the daemon's name below `localhost`, and listens on Hadoop's default ports. A browser
resolves all names below `localhost` to its own machine, where the pages are published, so links of Airflow and YARN
work in both.
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
} | {"gpunode1.http": "gpunode1.localhost:8043"}  # port 8042 of the browser's machine is that of node1


def build_files(gpus: int) -> dict[str, str]:
    """Return the texts of all files by name; each node of the partition has so many GPUs."""
    files = {f"client/{name}": text for name, text in config.build_files(None, HOME, ADDRESSES).items()}
    files["client/spark-defaults.conf"] = config.build_spark_defaults(
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
        files |= _build_daemon_files(sized)
    return files


def write(directory: Path, gpus: int) -> None:
    """Write all files below `directory`."""
    for name, text in build_files(gpus).items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def _build_daemon_files(daemon: Daemon) -> dict[str, str]:
    arguments = config.build_java_arguments(daemon, CONF / daemon.name, JARS, HOME)
    files = config.build_files(daemon, HOME, ADDRESSES) | {"java.args": "\n".join(arguments) + "\n"}
    return {f"{daemon.name}/{name}": text for name, text in files.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--gpus", type=int, default=2, help="GPUs of each node of the partition")
    arguments = parser.parse_args()
    write(arguments.directory, arguments.gpus)


if __name__ == "__main__":
    main()
