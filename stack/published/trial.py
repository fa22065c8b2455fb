"""Run a published script on two workers, by a DAG with a ScriptOperator, as a user does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

from stack.published import packages, repositories
from stack.published.data import NOT_SHIPPED, WRITERS
from stack.published.scripts import DATA, Script

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "published"
WORKERS = 2
DAG = """from airflow.sdk import DAG
from trainyard.operators import ScriptOperator

with DAG("published", schedule=None):
    ScriptOperator(
        task_id="train",
        workers={workers},
        {options},
    )
"""
STOP_SECONDS = 60


def run(script: Script) -> tuple[int, float, str]:
    """Run a script to its end; return the exit status of its DAG, its seconds and its output.

    Raises:
        MissingRepositoryError: Its repository cannot be fetched.
        MissingPackagesError: What it imports cannot be installed.
    """
    folder = FOLDER / script.name
    shutil.rmtree(folder, ignore_errors=True)
    dags = folder / "dags"
    clone = dags / script.clone
    clone.mkdir(parents=True)
    repositories.unpack(script.repository, script.folder, clone)
    data = folder / "data"
    if script.data:
        WRITERS[script.data](data)
    if script.data_folder:
        shutil.copytree(data, clone / script.data_folder, ignore=shutil.ignore_patterns(*NOT_SHIPPED))
    (dags / "published.py").write_text(build_dag(script, str(data), str(packages.install())))
    log = folder / "log.txt"
    started = time.monotonic()
    status = _run_dag(folder, dags, log, 60 * script.minutes)
    return status, time.monotonic() - started, log.read_text(errors="replace")


def build_dag(script: Script, data: str, installed: str) -> str:
    """Return the text of the DAG that runs a script.

    Args:
        script: The script.
        data: The folder of its data.
        installed: The folder with the packages that it may import beside the locked ones.
    """
    variables = {name: value.replace(DATA, data) for name, value in script.variables.items()}
    options: dict[str, object] = {
        "script": script.module,
        "arguments": [argument.replace(DATA, data) for argument in script.arguments],
        "env_vars": {"PYTHONPATH": installed} | variables,
    }
    if script.cwd:
        options["cwd"] = script.cwd.replace(DATA, data)
    lines = [f"{name}={value!r}" for name, value in options.items()]
    return DAG.format(workers=WORKERS, options=",\n        ".join(lines))


def _run_dag(folder: Path, dags: Path, log: Path, seconds: float) -> int:
    """Run the DAG in an Airflow of its own, and return its exit status."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "TRAINYARD"))}
    variables |= {"TRAINYARD_HOME": str(folder / "home"), "AIRFLOW__CORE__DAGS_FOLDER": str(dags)}
    command = ["bash", "-euo", "pipefail", "-c", ". stack/local/env.sh && exec airflow dags test published"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # ends the application of the task
            try:
                return process.wait(STOP_SECONDS) or 1
            finally:
                process.kill()
