"""The partition that an export has written starts the DAGs that wait for it, in Airflow's own database."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
FILES = {
    "days/__init__.py": "",
    "days/prepare.py": "def rows(spark, source):\n    return source\n",
    "days/dag.py": """
from airflow.sdk import DAG, Asset, PartitionedAssetTimetable, PartitionedAtRuntime, task
from trainyard.operators import ExportOperator

dataset = Asset("days/dataset")
with DAG("days", schedule=PartitionedAtRuntime()):
    ExportOperator(
        task_id="export", prepare="days.prepare:rows", source="days.json", dataset="days/dataset",
        partition="2026-01-05",
    )


@task
def wait():
    pass


with DAG("each_day", schedule=PartitionedAssetTimetable(assets=dataset)):
    wait()
with DAG("without_partitions", schedule=[dataset]):
    wait()
""",
}


def test_an_export_of_a_partition_queues_a_run_for_it(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / "dags" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dags" / name).write_text(text)
    (tmp_path / "storage").mkdir()
    (tmp_path / "storage/days.json").write_text("\n".join(f'{{"x": {n}}}' for n in range(100)))
    commands = """
. stack/local/env.sh
airflow dags reserialize
airflow dags unpause each_day
airflow dags unpause without_partitions
airflow dags test days
"""
    environment = os.environ | {"TRAINYARD_HOME": str(tmp_path), "AIRFLOW__CORE__DAGS_FOLDER": str(tmp_path / "dags")}
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout[-7000:]
    [file] = tmp_path.glob("airflow/*.db")
    with sqlite3.connect(file) as database:
        queued = database.execute("SELECT target_dag_id, partition_key FROM asset_partition_dag_run").fetchall()
    assert queued == [("each_day", "2026-01-05")]
