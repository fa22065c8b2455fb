"""Compare Trainyard's operators with Airflow's SparkSubmitOperator for the same applications.

    PYTHONPATH=plugins:. python bench/pipeline/dag.py [--runs 3]

Runs the digits example with `airflow dags test`, and a DAG of the same shape whose tasks are SparkSubmitOperators
with the program, args, configuration and environment that `python -m trainyard plan` prints, but without the daemon
that imports torch for the Python workers, and without shared classes: nothing else than a user of these operators
writes. The two alternate; the ratio is the median over neighboring runs of the time of the command.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from trainyard.schemas.specs import SPECS

STARTUP = ("spark.python.daemon.module", "spark.executorEnv.PYTHONPATH")
"""Settings that only shorten the start."""

ROOT = Path(__file__).parents[2]
PLAIN = """
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG, task

with DAG("plain", schedule=None):

    @task
    def images() -> str:
        from digits.source import write

        return write({source!r})

    export, train, evaluate, predict = [SparkSubmitOperator(**options) for options in {tasks!r}]
    images() >> export >> train >> [evaluate, predict]
"""


def run(command: str, environment: dict[str, str]) -> str:
    """Run a shell command in the environment of the local stack, and return its output."""
    shell = ["bash", "-euo", "pipefail", "-c", f". {ROOT}/stack/local/env.sh && {command}"]
    process = subprocess.run(shell, env=environment, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(
            f"{command} ended with {process.returncode}:\n{process.stdout[-3000:]}{process.stderr[-3000:]}"
        )
    return process.stdout


def write_plain_dag(folder: Path, environment: dict[str, str]) -> None:
    """Write the DAG of SparkSubmitOperators, and the job specs that its applications read."""
    output = run("PYTHONPATH=$AIRFLOW__CORE__PLUGINS_FOLDER python -m trainyard plan digits -o json", environment)
    source = f"{folder}/storage/digits/source"
    tasks = []
    for stage in json.loads(output[output.index("[") :]):
        plan, name = stage["plan"], stage["task_id"]
        spec = plan["job"]["spec"] | {
            "task_key": plan["job"]["spec"]["task_key"] | {"directory": f"file://{folder}/storage/runs/plain/1"}
        }
        if "source" in spec:
            spec["source"]["path"] = source
        file = folder / "specs" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(SPECS[f"{name} spec"].model_validate(spec).to_json())
        tasks.append(
            {
                "task_id": name, "name": f"plain.{name}", "application": plan["program"],
                "application_args": ["--spec", f"file://{file}"],
                "conf": {key: value for key, value in plan["conf"].items() if key not in STARTUP},
                "py_files": ",".join(plan["py_files"]), "env_vars": plan["env"],
            }
        )  # fmt: skip
    dags = folder / "dags"
    dags.mkdir()
    (dags / "plain.py").write_text(PLAIN.format(source=source, tasks=tasks))
    (dags / "digits").symlink_to(ROOT / "dags" / "digits")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        environment = os.environ | {"TRAINYARD_HOME": home}
        # The first run fills caches, and writes the model whose recipe the last two stages ship.
        run("airflow dags test digits", environment)
        write_plain_dag(folder, environment)
        environment["AIRFLOW__CORE__DAGS_FOLDER"] = f"{home}/dags"
        times: dict[str, list[float]] = {"digits": [], "plain": []}
        for _ in range(runs):
            for name, seconds in times.items():
                shutil.rmtree(folder / "storage" / "digits" / "dataset")  # otherwise the export is skipped
                started = time.perf_counter()
                run(f"airflow dags test {name}", environment)
                seconds.append(time.perf_counter() - started)
    for name, seconds in times.items():
        print(f"{name:7} {statistics.median(seconds):6.1f} s")
    ratio = statistics.median(digits / plain for digits, plain in zip(*times.values(), strict=True))
    print(f"digits / plain {ratio:.3f}  (goal at most 0.45)")


if __name__ == "__main__":
    main()
