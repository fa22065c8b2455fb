"""Where jobs run: with `local[2]` on this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.peers.processes import find_processes


class Place(Protocol):
    """Where a job runs."""

    def build_variables(self, folder: Path, common: Mapping[str, str]) -> dict[str, str]:
        """Return the environment variables that are different in each place, with Airflow's connections.

        Args:
            folder: The folder for the log, the marks and what the job stores.
            common: The variables that are the same in each place.
        """

    def list_left(self, token: str) -> Sequence[str]:
        """Return what still runs of a job: processes or applications, by name.

        Args:
            token: The token in the environment of the command.
        """

    def read_evaluation(self, folder: Path) -> bytes | None:
        """Return the evaluation that Trainyard has stored, None if there is none."""

    def end(self) -> None:
        """End what runs apart from the command and its descendants, and remove what it has stored elsewhere."""


class Local:
    """This machine, without a cluster."""

    def build_variables(self, folder: Path, common: Mapping[str, str]) -> dict[str, str]:
        """Return the connections to `local[2]` and to a folder."""
        trainyard = {"conn_type": "trainyard", "extra": {"storage": f"file://{folder / 'storage'}"}}
        return {
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps(trainyard),
        }

    def list_left(self, token: str) -> Sequence[str]:
        """Return the names of the processes with this token in their environment."""
        return sorted(find_processes(token).values())

    def read_evaluation(self, folder: Path) -> bytes | None:
        """Return the evaluation in the folder."""
        found = sorted((folder / "storage").glob("**/evaluations/*.json"))
        return found[0].read_bytes() if found else None

    def end(self) -> None:
        """Do nothing: all processes are descendants of the command."""


def parse_accuracy(evaluation: bytes) -> float:
    """Return the accuracy in an evaluation of Trainyard."""
    document: dict[str, Any] = json.loads(evaluation)
    return round(float(document["model"]["metrics"]["accuracy"]), 4)
