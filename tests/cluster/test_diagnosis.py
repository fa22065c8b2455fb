"""Messages of the daemons about a failure become sentences with the cause and the fix."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import Shell
from tests.cluster.jobs import Exports, build_plan, run_to_end, wait_for
from trainyard.backends.submission import Submission
from trainyard.diagnosis.diagnose import diagnose
from trainyard.errors import TrainyardError
from trainyard.operators import Memory, Placement, ScriptOperator
from trainyard.schemas.runs import events as event_log
from trainyard.spark_log import SparkLog
from trainyard.yarn.cluster import resource_manager
from trainyard.yarn.resource_manager import Application

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.timeout(900)]

PYTHON = sys.executable
DAG_WITHOUT_GPUS = """
from airflow.sdk import DAG
from trainyard.operators import ExportOperator, Placement

with DAG("nogpu", schedule=None):
    ExportOperator(
        task_id="export", prepare="toy.prepare:rows", source="file://{source}", format="json", dataset="a",
        placement=Placement(queue="train", node_label="gpu"),
        gpus_per_executor=1,
        conf={"spark.executorEnv.PATH": "/usr/bin:/bin"},
    )
"""
HOG = f"exec {PYTHON} -c 'data = b\"x\" * (400 << 20); import time; time.sleep(600)'".replace('"', '\\"')
Container = Callable[..., str]


@pytest.fixture
def container(configured: Cluster, writable: Path) -> Container:
    """A function that runs an application of one container, and returns YARN's diagnostics or its refusal."""
    started = writable / "started"

    def run(
        user: str = "root", stop: bool = False, lose: tuple[str, ...] = (), command: str = "true", **options: Any
    ) -> str:
        manager = replace(resource_manager(), user=user)
        defaults = {"name": "trial", "queue": "etl", "label": None, "memory": 256}
        try:
            id = manager.submit(**defaults | {"command": f"touch {started}; {command}"} | options)
        except TrainyardError as error:
            return str(error)
        status: list[Application | None] = []

        def in_state(*states: str) -> bool:
            status[:] = [manager.application(id)]
            return bool(status[0] and status[0].state in states)

        if stop:
            wait_for(lambda: in_state("RUNNING", "ACCEPTED"))
            manager.kill(id)
        if lose:
            wait_for(started.exists)
        for node in lose:
            configured.kill(node)
        wait_for(lambda: in_state("FINISHED", "FAILED", "KILLED"))
        configured.start()
        configured.wait()
        assert status[0]
        return status[0].diagnostics

    return run


@pytest.mark.parametrize(
    ("trial", "sentence"),
    [
        (
            {"command": HOG},
            "YARN killed the driver: it used [2-4].. MB of the 256 MB of its container",
        ),
        ({"command": f"{PYTHON} -c 'import nothere'"}, "The Python on the node has no module 'nothere'."),
        ({"command": "/opt/none/bin/python -V"}, "The Python that the job runs with is not on the node."),
        ({"command": "kill -9 $$"}, "A process was killed with SIGKILL, not by YARN"),
        ({"command": "sleep 600", "stop": True}, "User 'root' killed the application."),
        (
            {"command": "sleep 600", "queue": "train", "label": "gpu", "lose": ("gpunode1", "gpunode2")},
            "A node was lost with the containers on it",
        ),
        ({"queue": "nosuch"}, "There is no queue 'nosuch'."),
        ({"queue": "train", "user": "bob"}, "User 'bob' may not submit to queue 'train'."),
        ({"queue": "etl", "label": "gpu"}, "Queue 'etl' may not use node label 'gpu', or there is no such label."),
        ({"queue": "train", "label": "tpu"}, "Queue 'train' may not use node label 'tpu', or there is no such label."),
        ({"memory": 99_000}, "A container is larger than the largest that this cluster grants"),
    ],
)
def test_a_failure_has_an_explanation(
    container: Container, exports: Exports, trial: dict[str, Any], sentence: str
) -> None:
    message = container(**trial)
    diagnosis = diagnose(exports.plan(), message)
    assert diagnosis, message
    assert re.match(sentence, diagnosis.sentence), diagnosis.sentence


@pytest.mark.spark
@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        ({"spark.executor.memory": "8g"}, "A container is larger than the largest that this cluster grants, 6144 MB"),
        (
            {"spark.yarn.am.nodeLabelExpression": "tpu"},
            "Queue 'etl' may not use node label 'tpu', or there is no such label.",
        ),
    ],
)
def test_a_refusal_by_spark_submit_has_an_explanation(exports: Exports, conf: dict[str, str], sentence: str) -> None:
    plan, log = exports.plan(), SparkLog()
    lines: list[str] = []
    status = Submission(replace(plan, conf={**plan.conf, **conf}), log, lines.append, lambda: None).run()
    diagnosis = diagnose(plan, "\n".join(lines))
    assert status != 0 and diagnosis, lines
    assert diagnosis.sentence.startswith(sentence)


@pytest.mark.spark
@pytest.mark.airflow
def test_a_node_without_working_gpus_is_the_cause_in_the_task_in_show_and_in_the_report(
    shell: Shell, cluster: Cluster, tmp_path: Path
) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "__init__.py").write_text("")
    (tmp_path / "toy" / "prepare.py").write_text("def rows(spark, source): return source\n")
    source = tmp_path / "rows.json"
    source.write_text('{"x": 1}')
    (tmp_path / "toy" / "dag.py").write_text(DAG_WITHOUT_GPUS.replace("{source}", str(source)))
    process = shell(f"AIRFLOW__CORE__DAGS_FOLDER={tmp_path} airflow dags test nogpu")
    cause = "On node 'localhost', nvidia-smi found 0 of the 1 GPUs that an executor requests."
    assert f"ExportOperator 'export': {cause}" in process.stdout + process.stderr
    shown = shell("PYTHONPATH=plugins python -m trainyard run show nogpu").stdout
    assert cause in shown
    report = next(line.split()[-1] for line in shown.splitlines() if line.startswith("report"))
    read = f"from trainyard.files import storage; print(storage.read('{report}').decode())"
    assert cause.replace("'", "&#39;") in shell(f'PYTHONPATH=plugins python -c "{read}"').stdout


@pytest.mark.faults
@pytest.mark.spark
def test_a_worker_killed_for_memory_has_more_in_the_next_attempt(exports: Exports) -> None:
    package = exports.folder / "hungry"
    package.mkdir()
    (package / "__init__.py").write_text("")
    # YARN checks once a second.
    (package / "script.py").write_text('import time\n\ndata = b"x" * (1300 << 20)\ntime.sleep(10)\n')
    dag = DAG("hungry", schedule=None)
    dag.fileloc = str(package / "dag.py")
    operator = ScriptOperator(
        task_id="train", dag=dag, script="hungry.script", workers=1, max_restarts=2, grow_memory_to="3g",
        memory=Memory(heap="512m", native="768m"), placement=Placement(queue="train", node_label="gpu"),
    )  # fmt: skip
    plan = build_plan(operator, exports.root)
    failed = run_to_end(plan)
    assert failed.status == "failed"
    assert re.search(r"YARN killed a worker: it used \d+ MB of the \d+ MB .* Write memory=M", failed.error or "")
    names = [event["name"] for event in event_log.read(plan.job.task_key.directory)]
    assert names.count("worker group") == 1, "in a container of the same size the next worker would be killed as well"
    lines: list[str] = []
    record = run_to_end(plan, lines.append)
    if record.status == "failed":  # YARN's check in the first attempt came before the full allocation
        record = run_to_end(plan, lines.append)
    assert record.status == "succeeded"
    assert any(line.startswith("The memory was too small; now memory=Memory(heap='512m', native=") for line in lines)


@pytest.mark.faults
@pytest.mark.spark
def test_a_driver_killed_for_memory_has_more_in_the_next_attempt(exports: Exports) -> None:
    plan = exports.plan(
        """
        import time


        def rows(spark, source):
            data = b"x" * (1700 << 20)
            print(f"{len(data)} bytes are allocated", flush=True)
            time.sleep(10)  # YARN checks once a second
            return spark.range(500)
        """,
        grow_memory_to="3g",
    )
    with pytest.raises(TrainyardError, match=r"YARN killed the driver: it used \d+ MB of the \d+ MB .* Write driver_m"):
        run_to_end(plan)
    lines: list[str] = []
    try:
        record = run_to_end(plan, lines.append)
    except (
        TrainyardError
    ):  # YARN's check in the first attempt came before the full allocation, so the new limit is still too small
        record = run_to_end(plan, lines.append)
    assert record.status == "succeeded"
    assert any(
        line.startswith("The memory was too small; now driver_memory=Memory(heap='1g', native=") for line in lines
    )
    assert any("the last lines of the driver" in line and "bytes are allocated" in line for line in lines)
