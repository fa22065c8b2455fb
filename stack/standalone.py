"""Run a Spark standalone cluster on this machine, of the jars of pyspark: `python -m stack.standalone`.

Master and workers listen on free ports of the loopback interface. It ends with the program, or by Ctrl-C.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from trainyard.planning.runtime import spark_environment

PACKAGE = "org.apache.spark.deploy"
START_SECONDS = 120.0
ENVIRONMENT = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}


@dataclass(frozen=True)
class Standalone:
    """A running cluster: the URL of its master, and of the pages of master and workers."""

    master: str
    page: str
    workers: tuple[str, ...]

    def read(self, page: str) -> dict[str, Any]:
        """Return the state that the page of a daemon shows."""
        return dict(requests.get(f"{page}/json/", timeout=30).json())

    def count_workers(self) -> int:
        """Return how many workers have registered."""
        return int(self.read(self.page)["aliveworkers"])

    def list_applications(self, worker: str) -> set[str]:
        """Return the ids of the applications of which a worker has run executors."""
        return {executor["appid"] for executor in self.read(worker)["finishedexecutors"]}


@contextmanager
def run_cluster(folder: Path, workers: int = 2, cores: int = 1, memory: str = "1g") -> Iterator[Standalone]:
    """Run a master and its workers, until the block ends.

    Args:
        folder: The folder for logs, and for what executors write.
        workers: How many workers.
        cores: The cores that each offers.
        memory: The memory that each offers.
    """
    with ExitStack() as daemons:
        log = daemons.enter_context(_run(folder / "master", "master.Master"))
        master = _find(log, r"Starting Spark master at (spark://\S+)")
        page = _find(log, r"MasterWebUI.* at (http://\S+)")
        pages = []
        for number in range(workers):
            place = folder / f"worker-{number}"
            options = ["--cores", str(cores), "--memory", memory, "--work-dir", str(place / "work"), master]
            log = daemons.enter_context(_run(place, "worker.Worker", *options))
            pages.append(_find(log, r"WorkerWebUI.* at (http://\S+)"))
        cluster = Standalone(master, page, tuple(pages))
        _wait(lambda: cluster.count_workers() == workers, f"{workers} workers did not register")
        yield cluster


@contextmanager
def _run(folder: Path, kind: str, *arguments: str) -> Iterator[Path]:
    """Run a daemon, and return its log."""
    folder.mkdir(parents=True)
    environment = os.environ | spark_environment()
    environment = environment | ENVIRONMENT | {"SPARK_CONF_DIR": str(folder)}
    program = Path(environment["SPARK_HOME"], "bin", "spark-class")
    ports = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    command = [str(program), f"{PACKAGE}.{kind}", *ports, *arguments]
    log = folder / "log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            command, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield log
    finally:
        daemon.terminate()  # a worker ends its executors
        try:
            daemon.wait(30)
        finally:
            if daemon.poll() is None:
                os.killpg(daemon.pid, signal.SIGKILL)


def _find(log: Path, pattern: str) -> str:
    """Return what a daemon has logged by now, or soon."""
    _wait(lambda: re.search(pattern, log.read_text()) is not None, f"{log} has no {pattern!r}")
    found = re.search(pattern, log.read_text())
    assert found
    return found[1]


def _wait(condition: Any, problem: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(problem)
        time.sleep(0.2)


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with tempfile.TemporaryDirectory(prefix="standalone-") as folder, run_cluster(Path(folder)) as cluster:
        print(f"""Its pages are at {cluster.page}. Connect Airflow to it, and end it by Ctrl-C:
export SPARK_LOCAL_IP=127.0.0.1
export AIRFLOW_CONN_SPARK_DEFAULT='{{"conn_type": "spark", "host": "{cluster.master}"}}'""")
        with suppress(KeyboardInterrupt):
            signal.pause()


if __name__ == "__main__":
    main()
