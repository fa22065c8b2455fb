"""Which containers ran where, seen through the ResourceManager while they do.

    PYTHONPATH=plugins python -m stack.hadoop.containers --home DIR COMMAND...

runs a command and prints, when it has ended, a line for each container that YARN started meanwhile.
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
from trainyard.table import table

SECONDS = 0.5


@dataclass(frozen=True, order=True)
class Container:
    """One container: what it belongs to, where it ran, and what it was given."""

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
        return self.id.endswith("_000001")


class Yarn(Protocol):
    """A cluster whose ResourceManager can be asked."""

    def yarn(self, path: str, **query: str) -> Any:
        """What its REST interface says at `path`."""


class Watch:
    """Collects the containers of a cluster's applications until it is stopped."""

    def __init__(self, cluster: Yarn) -> None:
        self._cluster = cluster
        self._seen: dict[str, Container] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    @property
    def containers(self) -> list[Container]:
        """What was seen, in the order of applications."""
        return sorted(self._seen.values())

    def _watch(self) -> None:
        while not self._stopped.wait(SECONDS):
            try:
                self._look()
            except requests.RequestException:
                continue

    def _look(self) -> None:
        labels = {
            node["id"]: ",".join(node.get("nodeLabels") or []) for node in self._cluster.yarn("nodes")["nodes"]["node"]
        }
        running = self._cluster.yarn("apps", states="ACCEPTED,RUNNING")["apps"] or {}
        for app in running.get("app", []):
            attempts = self._cluster.yarn(f"apps/{app['id']}/appattempts")["appAttempts"]["appAttempt"]
            path = f"apps/{app['id']}/appattempts/{attempts[-1]['appAttemptId']}/containers"
            for found in self._cluster.yarn(path).get("container", []):
                gpus = {r["key"]: int(r["value"]) for r in _entries(found)}.get("yarn.io/gpu", 0)
                self._seen[found["containerId"]] = Container(
                    application=app["name"], id=found["containerId"], queue=app["queue"].removeprefix("root."),
                    node=found["assignedNodeId"], label=labels.get(found["assignedNodeId"], ""),
                    megabytes=int(found["allocatedMB"]), cores=int(found["allocatedVCores"]), gpus=gpus,
                )  # fmt: skip


def _entries(container: dict[str, object]) -> list[dict[str, str]]:
    resources = container.get("allocatedResources")
    return list(resources.get("entry", [])) if isinstance(resources, dict) else []


_HEAD = ("application", "what", "queue", "node", "label", "memory", "cores", "GPUs")


def listed(containers: list[Container]) -> str:
    """A table with a line for each container."""
    return table(_HEAD, [_row(container) for container in containers])


def _row(found: Container) -> list[str]:
    what = "driver" if found.driver else "executor"
    figures = [f"{found.megabytes} MB", str(found.cores), str(found.gpus)]
    return [found.application, what, found.queue, found.node, found.label or "-", *figures]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Path(".run/hadoop"))
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    with Watch(Cluster.open(chosen.home.resolve())) as watch:
        status = subprocess.run(chosen.command, check=False).returncode
    print("\n" + listed(watch.containers))
    return status


if __name__ == "__main__":
    sys.exit(main())
