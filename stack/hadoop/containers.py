"""Run a command, and print a line for each container that YARN started in the meantime.

PYTHONPATH=plugins python -m stack.hadoop.containers --home DIR COMMAND...
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import requests

from stack.hadoop.cluster import Cluster
from trainyard.text import table

POLL_SECONDS = 0.5


@dataclass(frozen=True, order=True)
class Container:
    """A container: its application, the node it ran on, and its resources."""

    application: str
    id: str
    queue: str
    node: str
    label: str
    megabytes: int
    cores: int
    gpus: int

    @property
    def driver(self) -> bool:
        """Whether the application's driver runs in it."""
        return self.id.endswith("_000001")


class Yarn(Protocol):
    """A cluster with a ResourceManager."""

    def query_yarn(self, path: str, **query: str) -> Any:
        """Return the answer of its REST interface at `path`."""


class ContainerWatch:
    """Collect the containers of a cluster's applications while the context is active."""

    def __init__(self, cluster: Yarn) -> None:
        self._cluster = cluster
        self._seen: dict[str, Container] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ContainerWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def containers(self) -> list[Container]:
        """The containers so far, sorted by application."""
        return sorted(self._seen.values())

    def _watch(self) -> None:
        while not self._stopped.wait(POLL_SECONDS):
            try:
                self._poll()
            except (requests.RequestException, LookupError, TypeError):  # also from a manager without nodes or attempts
                continue

    def _poll(self) -> None:
        labels = {
            node["id"]: ",".join(node.get("nodeLabels") or [])
            for node in self._cluster.query_yarn("nodes")["nodes"]["node"]
        }
        running = self._cluster.query_yarn("apps", states="ACCEPTED,RUNNING")["apps"] or {}
        for app in running.get("app", []):
            attempts = self._cluster.query_yarn(f"apps/{app['id']}/appattempts")["appAttempts"]["appAttempt"]
            path = f"apps/{app['id']}/appattempts/{attempts[-1]['appAttemptId']}/containers"
            for container in _as_list(self._cluster.query_yarn(path).get("container", [])):
                gpus = {r["key"]: int(r["value"]) for r in _list_resources(container)}.get("yarn.io/gpu", 0)
                self._seen[container["containerId"]] = Container(
                    application=app["name"], id=container["containerId"], queue=app["queue"].removeprefix("root."),
                    node=container["assignedNodeId"], label=labels.get(container["assignedNodeId"], ""),
                    megabytes=int(container["allocatedMB"]), cores=int(container["allocatedVCores"]), gpus=gpus,
                )  # fmt: skip


def _list_resources(container: dict[str, object]) -> list[dict[str, str]]:
    resources = container.get("allocatedResources")
    return _as_list(resources.get("entry", [])) if isinstance(resources, dict) else []


def _as_list(entries: Any) -> list[Any]:
    """Return entries as a list; Hadoop 3.2 writes a single one as an object."""
    return entries if isinstance(entries, list) else [entries]


_HEADER = ("application", "process", "queue", "node", "label", "memory", "cores", "GPUs")


def format_containers(containers: list[Container]) -> str:
    """Return a table with a line for each container."""
    return table(_HEADER, [_format_row(container) for container in containers])


def _format_row(container: Container) -> list[str]:
    process = "driver" if container.driver else "executor"
    resources = [f"{container.megabytes} MB", str(container.cores), str(container.gpus)]
    return [container.application, process, container.queue, container.node, container.label or "-", *resources]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Path(".run/hadoop"))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    with ContainerWatch(Cluster.open(arguments.home.resolve())) as watch:
        status = subprocess.run(arguments.command, check=False).returncode
    print("\n" + format_containers(watch.containers))
    return status


if __name__ == "__main__":
    sys.exit(main())
