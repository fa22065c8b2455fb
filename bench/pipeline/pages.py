"""Measure how long pages take to open in Chromium: a pipeline of many runs, Airflow's grid of them, and a large report.

    . stack/local/env.sh && PYTHONPATH=plugins:. \
        python bench/pipeline/pages.py [--runs 1000] [--events 100000] [--rounds 5]

The benchmark starts an API server of its own Airflow, whose database and storage have finished runs of the digits
DAG. A page is open when its runs can be clicked. The report has eight workers.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import requests
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support import expected_conditions as expected
from selenium.webdriver.support.wait import WebDriverWait

from trainyard.planning.paths import run_directory
from trainyard.report import render
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey

ROOT = Path(__file__).parents[2]
STAGES = ("export", "train", "evaluate", "predict")
WORKERS, PHASES = 8, ("data wait", "forward", "backward", "optimizer")
FILL = """
import sys
from datetime import UTC, datetime, timedelta
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
with create_session() as session:
    for n in range(int(sys.argv[1])):
        at = noon + timedelta(minutes=n)
        run = DagRun(dag_id="digits", run_id=f"r{n}", run_after=at, run_type="manual", state="success", start_date=at)
        run.end_date = at + timedelta(seconds=50)
        session.add(run)
"""


def write_records(storage: str, runs: int) -> None:
    """Write the records of four stages for each run."""
    for number in range(runs):
        directory = run_directory(storage, "digits", f"r{number}")
        for position, task in enumerate(STAGES):
            task_key = TaskKey(dag_id="digits", run_id=f"r{number}", task_id=task, directory=directory)
            metrics = {"accuracy": 0.9 + number / runs / 20} if task == "evaluate" else {}
            RunRecord(
                task_key=task_key, job=task, application=f"local-{number}", started_at=60.0 * number + 10 * position,
                seconds=9.0, status="succeeded",
                output={"metrics": metrics, "uri": f"{storage}/digits/{task}", "version": 1, "rows": 1797,
                        "model": f"{storage}/digits/model"},
            ).save()  # fmt: skip


def render_large_report(directory: str, events: int) -> Path:
    """Render the report of a training with so many spans; return its path."""
    steps = events // (WORKERS * len(PHASES))
    for rank in range(WORKERS):
        with EventLog(directory, "train", f"worker {rank}", rank) as log:
            for step in range(steps):
                for position, phase in enumerate(PHASES):
                    log.add(phase, 10**9 * (10 * step + 2 * position), 19 * 10**8)
    render.render(directory)
    return Path(directory, "report.html")


@contextmanager
def run_server(environment: dict[str, str], home: Path) -> Iterator[str]:
    """Run an API server while the context is active; yield its URL."""
    url = environment["AIRFLOW__API__BASE_URL"]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "airflow", "api-server"], env=environment, stdout=log, stderr=log
        )
    try:
        while not _is_up(url):
            if process.poll() is not None:
                raise SystemExit((home / "log").read_text()[-3000:])
            time.sleep(0.5)
        yield url
    finally:
        process.terminate()
        process.wait()


def _is_up(url: str) -> bool:
    try:
        return requests.get(f"{url}/api/v2/version", timeout=30).ok
    except requests.RequestException:
        return False


@contextmanager
def open_browser(folder: Path) -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1300,1400",
        f"--user-data-dir={folder}",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
    try:
        yield driver
    finally:
        driver.quit()


def measure_page(driver: webdriver.Chrome, url: str, ready: str) -> float:
    """Return the seconds from the request of a page until the element that `ready` selects can be clicked."""
    driver.get("about:blank")
    started = time.perf_counter()
    driver.get(url)
    WebDriverWait(driver, 120, 0.02).until(expected.element_to_be_clickable((By.CSS_SELECTOR, ready)))
    return time.perf_counter() - started


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--runs", type=int, default=1000)
    options.add_argument("--events", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=5)
    args = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port, home = probe.getsockname()[1], Path(folder)
        probe.close()
        storage = (home / "storage").as_uri()
        environment = os.environ | {
            "AIRFLOW_HOME": f"{home}/airflow", "AIRFLOW__API__PORT": str(port), "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}", "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
            "AIRFLOW_CONN_TRAINYARD_DEFAULT": json.dumps({"conn_type": "trainyard", "extra": {"storage": storage}}),
        }  # fmt: skip
        for command in (["-m", "airflow", "db", "migrate"], ["-m", "airflow", "dags", "reserialize"]):
            subprocess.run([sys.executable, *command], env=environment, check=True, capture_output=True)
        subprocess.run([sys.executable, "-c", FILL, str(args.runs)], env=environment, check=True)
        write_records(storage, args.runs)
        report = render_large_report(f"{home}/large", args.events)
        with run_server(environment, home) as url, open_browser(home / "chromium") as driver:
            pages = {
                "Airflow's grid": (f"{url}/dags/digits", "a[href*='/runs/']"),
                "pipeline": (f"{url}/trainyard/pipeline?conn_id=trainyard_default&dag_id=digits", "#runs th a"),
                "report": (report.as_uri(), "#timeline"),
            }
            for page in pages.values():
                measure_page(driver, *page)
            rounds = [{name: measure_page(driver, *page) for name, page in pages.items()} for _ in range(args.rounds)]
        print(f"{args.runs:,} runs: " + ", ".join(
            f"{name} {statistics.median(each[name] for each in rounds):.2f} s" for name in pages
        ))  # fmt: skip
        ratio = statistics.median(each["pipeline"] / each["Airflow's grid"] for each in rounds)
        print(f"pipeline / grid: {ratio:.2f} (goal 1.0)")
        print(f"report of {args.events:,} events: {report.stat().st_size / 2**20:.2f} MiB (goal 5)")


if __name__ == "__main__":
    main()
