"""A task that keeps its worker slot while its application runs on YARN, with the driver's output in its log."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import ROOT

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(900)]

DAG = """
    from airflow.sdk import DAG

    from trainyard.operators import ExportOperator
    from trainyard.sensors import ApplicationSensor

    with DAG("wait", schedule=None):
        export = ExportOperator(
            task_id="export", prepare="toy.prepare:rows", source="{folder}/source.json", format="json",
            dataset="wait/dataset", executors=1, deferrable=False, get_logs=True, poll_interval=0.5,
        )
        ended = ApplicationSensor(
            task_id="ended", application="{{{{ ti.xcom_pull('export', key='trainyard_application').split('/')[-1] }}}}",
            deferrable=False, poke_interval=0.5,
        )
        export >> ended
"""
PREPARE = """
    import pathlib, time

    def rows(spark, source):
        print("the driver prepares rows", flush=True)
        deadline = time.monotonic() + 300
        while not pathlib.Path("{folder}/seen").exists():
            assert time.monotonic() < deadline, "the output was not seen while the application ran"
            time.sleep(0.2)
        return spark.range(500)
"""


def test_the_output_of_the_driver_is_in_the_log_while_it_runs(
    environment: dict[str, str], cluster: Cluster, tmp_path: Path
) -> None:
    package = tmp_path / "dags" / "toy"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "prepare.py").write_text(textwrap.dedent(PREPARE).format(folder=tmp_path))
    (package / "dag.py").write_text(textwrap.dedent(DAG).format(folder=tmp_path.as_uri()))
    (tmp_path / "source.json").write_text('{"x": 1.5}\n')
    script = '. stack/local/env.sh && . "$CLUSTER_ENV" && exec airflow dags test wait'
    variables = environment | {"AIRFLOW__CORE__DAGS_FOLDER": str(package.parent)}
    lines: list[str] = []
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env=variables, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout
        for line in process.stdout:
            lines.append(line)
            if "the driver prepares rows" in line:
                (tmp_path / "seen").touch()
    output = "".join(lines)
    assert process.returncode == 0, output
    assert "the driver prepares rows" in output, "the application ends with success only after this was seen"
    assert "Success criteria met" in output, "the sensor found the end of the application"
