"""The digits on a real Spark standalone cluster: a master and two workers, each with one core."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from stack.standalone import Standalone, run_cluster
from trainyard.clusters.standalone import find_master
from trainyard.schemas.runs import run_record

pytestmark = [pytest.mark.full, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]
ROOT = Path(__file__).parents[2]
PLACEMENT = 'placement=Placement(queue="train", node_label="gpu"),\n        gpus_per_worker=1,\n'
SCRIPT = """
. stack/local/env.sh
export AIRFLOW_CONN_TRAINYARD_DEFAULT="$CONNECTION"
airflow dags test digits >"$TRAINYARD_HOME/log" 2>&1
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    with run_cluster(tmp_path / "standalone", workers=2, cores=1) as running:
        yield running


@pytest.fixture
def dags(tmp_path: Path) -> Path:
    """The example without its placement, which is for YARN."""
    folder = tmp_path / "dags"
    shutil.copytree(ROOT / "dags/digits", folder / "digits", ignore=shutil.ignore_patterns("__pycache__"))
    dag = folder / "digits/dag.py"
    assert dag.read_text().count(PLACEMENT) == 1
    dag.write_text(dag.read_text().replace(PLACEMENT, ""))
    return folder


def test_the_digits_are_trained_on_both_workers_of_a_standalone_cluster(
    cluster: Standalone, dags: Path, tmp_path: Path
) -> None:
    home, storage = tmp_path / "home", tmp_path / "home/storage"
    home.mkdir()
    # As in stack/local/env.sh: jobs are small, and end before the optimizing compiler is worth it.
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    (tmp_path / "spark-defaults.conf").write_text(f"spark.executor.extraJavaOptions {options}\n")
    assert f"spark://{find_master(cluster.master)}" == cluster.master
    environment = os.environ | {
        "TRAINYARD_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": cluster.master}),
        "CONNECTION": json.dumps(
            {"conn_type": "trainyard", "extra": {"storage": storage.as_uri(), "shared": True}}
        ),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_CONF_DIR": str(tmp_path),
    }  # fmt: skip
    ended = subprocess.run(["bash", "-euo", "pipefail", "-c", SCRIPT], cwd=ROOT, env=environment)
    assert ended.returncode == 0, (home / "log").read_text()[-7000:]
    [directory] = (storage / "runs/digits").iterdir()
    records = {record.task_key.task: record for record in run_record.read_run(str(directory))}
    assert {name: record.status for name, record in records.items()} == dict.fromkeys(
        ("export", "train", "evaluate", "promote", "predict"), "succeeded"
    )
    assert records["evaluate"].output["metrics"]["accuracy"] >= 0.95
    assert len(pd.read_parquet(storage / "digits/predictions")) == 1797
    assert records["train"].output["workers"] == 2
    for worker in cluster.workers:
        assert records["train"].application in cluster.list_applications(worker), "each worker has run one rank"
    assert cluster.read(cluster.page)["activeapps"] == [], "no application outlives its task"
