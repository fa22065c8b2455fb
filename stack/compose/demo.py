"""Run a DAG through Airflow's REST interface, and list the containers that YARN started for it.

    PYTHONPATH=.:plugins python -m stack.compose.demo DAG

Ports and the password are those in .env, as environment variables.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from stack.hadoop.containers import ContainerWatch, format_containers

PARSE_TIMEOUT_SECONDS = 120.0
FINAL_STATES = ("success", "failed")


class Airflow:
    """Airflow's REST interface, as its only user."""

    def __init__(self, url: str, password: str) -> None:
        self._url = f"{url}/api/v2"
        self._session = requests.Session()
        # Requests are retried while the API server or its database restarts.
        retry = Retry(total=10, backoff_factor=1, status_forcelist=[500, 502, 503, 504])
        self._session.mount(url, HTTPAdapter(max_retries=retry))
        login = {"username": "admin", "password": password}
        token = _get_json(self._session.post(f"{url}/auth/token", json=login, timeout=30))["access_token"]
        self._session.headers["Authorization"] = f"Bearer {token}"

    def trigger(self, dag: str) -> str:
        """Start a run of `dag`, which may not be parsed yet; return the id of the run."""
        end = time.monotonic() + PARSE_TIMEOUT_SECONDS
        while self._session.get(f"{self._url}/dags/{dag}", timeout=30).status_code == 404 and time.monotonic() < end:
            time.sleep(1)
        response = self._session.post(f"{self._url}/dags/{dag}/dagRuns", json={"logical_date": None}, timeout=30)
        return str(_get_json(response)["dag_run_id"])

    def get_state(self, dag: str, run: str) -> str:
        """Return the state of a run."""
        return str(_get_json(self._session.get(f"{self._url}/dags/{dag}/dagRuns/{run}", timeout=30))["state"])


class ResourceManager:
    """The ResourceManager's REST interface, as the user that applications run as."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/ws/v1/cluster"

    def query_yarn(self, path: str, **query: str) -> Any:
        """Return the answer at `path`."""
        return _get_json(requests.get(f"{self._url}/{path}", params=query | {"user.name": "trainyard"}, timeout=30))


def _get_json(response: requests.Response) -> Any:
    response.raise_for_status()
    return response.json()


def main() -> int:
    dag = sys.argv[1]
    airflow = Airflow(f"http://127.0.0.1:{os.environ['AIRFLOW_PORT']}", os.environ["AIRFLOW_ADMIN_PASSWORD"])
    with ContainerWatch(ResourceManager(f"http://127.0.0.1:{os.environ['RESOURCEMANAGER_PORT']}")) as watch:
        run = airflow.trigger(dag)
        print(f"{dag} {run}", flush=True)
        while (state := airflow.get_state(dag, run)) not in FINAL_STATES:
            time.sleep(2)
    print(f"{state}\n\n{format_containers(watch.containers)}")
    return 0 if state == "success" else 1


if __name__ == "__main__":
    sys.exit(main())
