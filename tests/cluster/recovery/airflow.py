"""An Airflow of separate processes, so that a test can kill and restart each of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

import requests

from tests.cluster.jobs import wait_for

ROOT = Path(__file__).parents[3]
COMPONENTS = ("api-server", "dag-processor", "scheduler", "triggerer")
OPTIONS = {"scheduler": "--skip-serve-logs", "triggerer": "--skip-serve-logs"}  # otherwise they listen on all addresses
QUICK = {
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
    "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
    "AIRFLOW__CORE__PARALLELISM": "4",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
    "AIRFLOW__SCHEDULER__TRIGGER_TIMEOUT_CHECK_INTERVAL": "5",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "10",
    # Each time takes a process that imports Airflow, for each of the DAGs, which do not change.
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "1200",
    "AIRFLOW__API__WORKERS": "1",
}


@dataclass
class Airflow:
    """The processes of an Airflow, by the names of its commands, and its REST interface."""

    environment: Mapping[str, str]
    logs: Path
    port: int
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=lambda: OPTIONS)
    wrapper: Sequence[str | Path] = ()

    def start(self, component: str, **settings: str) -> None:
        """Start a component in a process group of its own, so that its child processes end with it.

        `settings` are environment variables of this process alone.
        """
        script = (
            f'. stack/local/env.sh && . "$CLUSTER_ENV" && exec airflow {component} {self.options.get(component, "")}'
        )
        with (self.logs / f"{component}.log").open("ab") as log:
            self.processes[component] = subprocess.Popen(
                [*self.wrapper, "bash", "-euo", "pipefail", "-c", script],
                cwd=ROOT, env={**self.environment, **settings},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def kill(self, component: str, number: signal.Signals = signal.SIGKILL) -> None:
        """End a component and its child processes."""
        process = self.processes.pop(component)
        os.killpg(process.pid, number)
        process.wait()

    def api(self, method: str, path: str, **body: Any) -> Any:
        """Return the answer of the REST interface. A request is repeated while the database, a SQLite, is locked.

        It fails when a component has ended by itself: nothing restarts it here, and the test would wait in vain.
        """
        ended = [component for component, process in self.processes.items() if process.poll() is not None]
        assert not ended, f"{ended} ended, see the logs in {self.logs}"
        deadline, is_repeated = time.monotonic() + 120, False
        while True:
            response = self._request(method, path, body)
            if response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR or time.monotonic() > deadline:
                break
            is_repeated = True
            time.sleep(0.5)
        has_succeeded_before = is_repeated and response.status_code == HTTPStatus.CONFLICT
        assert response.ok or has_succeeded_before, f"{method} {path}: {response.status_code} {response.text}"
        return response.json() if response.content else None

    def _request(self, method: str, path: str, body: Mapping[str, Any]) -> requests.Response:
        base = f"http://127.0.0.1:{self.port}"
        token = requests.get(f"{base}/auth/token", timeout=120).json()["access_token"]
        headers = {"Authorization": f"Bearer {token}"}
        return requests.request(method, f"{base}/api/v2/{path}", json=body or None, timeout=120, headers=headers)

    def answers(self) -> bool:
        try:
            self.api("GET", "monitor/health")
        except requests.RequestException:
            return False
        return True

    def is_healthy(self) -> bool:
        try:
            health = self.api("GET", "monitor/health")
        except requests.RequestException:
            return False
        return all(health[name]["status"] == "healthy" for name in ("scheduler", "triggerer", "dag_processor"))

    def has_dag(self, dag: str) -> bool:
        return dag in [entry["dag_id"] for entry in self.api("GET", "dags")["dags"]]

    def trigger(self, dag: str, run: str, **conf: Any) -> None:
        self.api("POST", f"dags/{dag}/dagRuns", dag_run_id=run, logical_date=None, conf=conf)

    def get_state(self, dag: str, run: str) -> str:
        return str(self.api("GET", f"dags/{dag}/dagRuns/{run}")["state"])

    def list_runs(self, dag: str) -> list[str]:
        return [str(run["dag_run_id"]) for run in self.api("GET", f"dags/{dag}/dagRuns")["dag_runs"]]

    def get_result(self, dag: str, run: str, task: str) -> Any:
        """Return the result of a task."""
        path = f"dags/{dag}/dagRuns/{run}/taskInstances/{task}/xcomEntries/return_value"
        return self.api("GET", path)["value"]

    def get_task_state(self, dag: str, run: str, task: str) -> str:
        return str(self.api("GET", f"dags/{dag}/dagRuns/{run}/taskInstances/{task}")["state"])

    def read_logs(self, dag: str, task: str) -> str:
        """Return the logs of all attempts of a task in all runs, for the message of a failed test."""
        files = sorted((self.logs / "airflow" / "logs").glob(f"dag_id={dag}/run_id=*/task_id={task}/*"))
        return "\n".join(f"{file}\n{file.read_text()}" for file in files)


@contextmanager
def run_airflow(
    environment: Mapping[str, str],
    home: Path,
    added: Mapping[str, str] | None = None,
    wrapper: Sequence[str | Path] = (),
) -> Iterator[Airflow]:
    """Run all components while the context is active; they are healthy on entry.

    Args:
        environment: The environment variables of all of them; they override those that make the tests quick.
        home: The folder of its files.
        added: More components, as arguments of the command `airflow`, with their options.
        wrapper: A command that runs the command of each component.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    variables = {
        "TRAINYARD_HOME": str(home),
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "tests" / "cluster" / "dags"),
    }
    options = {**OPTIONS, **(added or {})}
    airflow = Airflow({**QUICK, **environment, **variables}, home, port, options=options, wrapper=wrapper)
    components = (*COMPONENTS, *(added or {}))
    try:
        for component in components:
            airflow.start(component)
            if component == "api-server":
                wait_for(airflow.answers)  # it has created the tables of the database
        wait_for(airflow.is_healthy)
        yield airflow
    finally:
        for component in reversed(components):
            if component in airflow.processes:
                airflow.kill(component)
