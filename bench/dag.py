"""What Trainyard's operators cost, against Airflow's plain SparkSubmitOperator running the same applications.

    PYTHONPATH=plugins:. python bench/dag.py [--runs 3]

The digits example by `airflow dags test`, and a DAG of the same shape whose tasks are SparkSubmitOperators
with the program, arguments, configuration and environment that `python -m trainyard plan` prints. The two
take turns; the ratio is the median over neighbouring runs of seconds for the whole command.
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

ROOT = Path(__file__).parent.parent
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
    """The output of a shell command that has sourced the local stack's environment."""
    shell = ["bash", "-euo", "pipefail", "-c", f". {ROOT}/stack/local/env.sh && {command}"]
    done = subprocess.run(shell, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def plain_dag(folder: Path, environment: dict[str, str]) -> None:
    """Write the DAG of plain operators, and the job specs that its applications read."""
    printed = run("PYTHONPATH=$AIRFLOW__CORE__PLUGINS_FOLDER python -m trainyard plan digits --json", environment)
    source = f"{folder}/storage/digits/source"
    tasks = []
    for stage in json.loads(printed[printed.index("[") :]):
        plan, name = stage["plan"], stage["task_id"]
        spec = plan["spec"] | {
            "task_key": plan["spec"]["task_key"] | {"directory": f"file://{folder}/storage/runs/plain/1"}
        }
        if "source" in spec:
            spec["source"]["path"] = source
        file = folder / "specs" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(SPECS[f"{name} spec"].model_validate(spec).to_json())
        tasks.append(
            {
                "task_id": name, "name": f"plain.{name}", "application": plan["program"],
                "application_args": ["--spec", f"file://{file}"], "conf": plan["conf"],
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
        # Once before, for the caches and because the last two stages ship the recipe of a model that is there.
        run("airflow dags test digits", environment)
        plain_dag(folder, environment)
        environment["AIRFLOW__CORE__DAGS_FOLDER"] = f"{home}/dags"
        taken: dict[str, list[float]] = {"digits": [], "plain": []}
        for _ in range(runs):
            for name, seconds in taken.items():
                shutil.rmtree(folder / "storage" / "digits" / "dataset")  # or there would be nothing to export
                started = time.perf_counter()
                run(f"airflow dags test {name}", environment)
                seconds.append(time.perf_counter() - started)
    for name, seconds in taken.items():
        print(f"{name:7} {statistics.median(seconds):6.1f} s")
    ratio = statistics.median(ours / theirs for ours, theirs in zip(*taken.values(), strict=True))
    print(f"digits / plain {ratio:.3f}  (goal at most 1.05)")


if __name__ == "__main__":
    main()
