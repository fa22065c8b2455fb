"""Runs one DAG through Airflow's REST interface, and lists the containers that YARN started for it.

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

from stack.hadoop.containers import Watch, listed

PARSED_SECONDS = 120.0
ENDED = ("success", "failed")


class Airflow:
    """Airflow's REST interface, to its one user."""

    def __init__(self, url: str, password: str) -> None:
        self._url = f"{url}/api/v2"
        self._session = requests.Session()
        # Reading outlasts an api-server, or its database, that is started again.
        again = Retry(total=10, backoff_factor=1, status_forcelist=[500, 502, 503, 504])
        self._session.mount(url, HTTPAdapter(max_retries=again))
        login = {"username": "admin", "password": password}
        token = _answer(self._session.post(f"{url}/auth/token", json=login, timeout=30))["access_token"]
        self._session.headers["Authorization"] = f"Bearer {token}"

    def trigger(self, dag: str) -> str:
        """Start a run of `dag`, which may not have been parsed yet; the run's id."""
        end = time.monotonic() + PARSED_SECONDS
        while self._session.get(f"{self._url}/dags/{dag}", timeout=30).status_code == 404 and time.monotonic() < end:
            time.sleep(1)
        new = self._session.post(f"{self._url}/dags/{dag}/dagRuns", json={"logical_date": None}, timeout=30)
        return str(_answer(new)["dag_run_id"])

    def state(self, dag: str, run: str) -> str:
        return str(_answer(self._session.get(f"{self._url}/dags/{dag}/dagRuns/{run}", timeout=30))["state"])


class ResourceManager:
    """The ResourceManager's REST interface, to the user that applications run as."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/ws/v1/cluster"

    def yarn(self, path: str, **query: str) -> Any:
        return _answer(requests.get(f"{self._url}/{path}", params=query | {"user.name": "trainyard"}, timeout=30))


def _answer(response: requests.Response) -> Any:
    response.raise_for_status()
    return response.json()


def main() -> int:
    dag = sys.argv[1]
    airflow = Airflow(f"http://127.0.0.1:{os.environ['AIRFLOW_PORT']}", os.environ["AIRFLOW_ADMIN_PASSWORD"])
    with Watch(ResourceManager(f"http://127.0.0.1:{os.environ['RESOURCEMANAGER_PORT']}")) as watch:
        run = airflow.trigger(dag)
        print(f"{dag} {run}", flush=True)
        while (state := airflow.state(dag, run)) not in ENDED:
            time.sleep(2)
    print(f"{state}\n\n{listed(watch.containers)}")
    return 0 if state == "success" else 1


if __name__ == "__main__":
    sys.exit(main())
