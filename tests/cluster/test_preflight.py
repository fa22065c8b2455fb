"""Preflight checks a DAG against the live cluster before it runs, and reports all problems with their fixes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from stack.hadoop.config import USER
from tests.cluster.conftest import Shell, list_applications
from tests.cluster.jobs import Exports, wait_for
from trainyard.checks.preflight import check_dag
from trainyard.clusters.yarn import probe
from trainyard.errors import TrainyardError
from trainyard.jobs.dry_run import TaskPlan
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory
from trainyard.yarn import cluster as live
from trainyard.yarn import fit

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.airflow, pytest.mark.timeout(900)]

GPUS = Placement(queue="train", node_label="gpu")
BROKEN_DAG = """
    from airflow.sdk import DAG
    from trainyard.operators import ExportOperator, PreflightOperator
    from trainyard.planning.placement import Placement
    from trainyard.planning.sizing import Memory

    with DAG("broken", schedule=None):
        look = PreflightOperator(task_id="look")
        first = ExportOperator(
            task_id="first", prepare="toy.prepare:rows", source="{source}", format="json", dataset="a",
            placement=Placement(queue="etl", node_label="gpu"),
        )
        second = ExportOperator(
            task_id="second", prepare="toy.prepare:rows", source="{source}", format="json", dataset="b",
            memory=Memory(heap="4g", native="9g"),
        )
        third = ExportOperator(
            task_id="third", prepare="toy.prepare:rows", source="{source}", format="json", dataset="{nowhere}/c",
            conf={{"spark.pyspark.python": "/opt/none/bin/python"}},
        )
        look >> first >> second >> third
"""


def find_problems(plan: Plan, user: str | None = None) -> list[str]:
    snapshot = live.take_snapshot()
    snapshot = replace(snapshot, user=user) if user else snapshot
    return [finding.problem for finding in fit.check_plan(plan, snapshot) if finding.problem]


def find_warnings(plan: Plan) -> list[str]:
    return [finding.warning for finding in fit.check_plan(plan, live.take_snapshot()) if finding.warning]


def build_group_plan(
    exports: Exports, workers: int, placement: Placement = GPUS, memory: Memory | None = None, gpus: int = 1
) -> Plan:
    return exports.plan(memory=memory).with_job(placement=placement, workers=workers, gpus=gpus)


def test_the_example_fits_the_cluster(cluster: Cluster, shell: Shell) -> None:
    before = {app["id"] for app in list_applications(cluster)}
    process = shell("PYTHONPATH=plugins:. python -m trainyard preflight digits")
    assert process.returncode == 0, process.stdout + process.stderr
    table = process.stdout
    assert "DOES NOT FIT" not in table
    assert "2 x 3072 MB, 1 core, 1 GPU" in table and "12288 MB, 8 cores, 4 GPUs" in table
    assert "fsspec, numpy, psutil, pyarrow, pydantic, safetensors, tenacity, torch" in table
    assert "found by nvidia-smi" in table
    assert f"{cluster.storage}  " in table
    assert table.count("accessible on nodes without a label") == 2, "one as all drivers, one as all executors"
    assert table.count("accessible on nodes of partition 'gpu'") == 1
    new = [app["name"] for app in list_applications(cluster) if app["id"] not in before]
    assert set(new) == {"trainyard-probe"}, "preflight runs no task of the DAG"


def test_the_doctor_reports_nodes_gpus_and_their_python(cluster: Cluster, shell: Shell) -> None:
    process = shell("PYTHONPATH=plugins:. python -m trainyard doctor")
    lines = {line.split("  ")[0]: line for line in process.stdout.splitlines()}
    assert "2 nodes, 12288 MB, 4 GPUs, by queue train" in lines["label gpu"]
    python = lines["Java, Python of gpu"]
    assert "imports fsspec, numpy, psutil, pyarrow, pydantic, safetensors, tenacity, torch" in python
    assert lines["GPU of gpu"].endswith("ok")
    for label in ("no label", "gpu"):
        assert f"{cluster.storage}, written and read in a container" in lines[f"storage of {label}"]
    assert lines["clock"].endswith("ok") and lines["queue"].endswith("ok")
    assert lines["triggerer"].endswith("FIX"), "none is running"
    assert process.returncode == 1 and process.stdout.count("FIX") == 1, process.stdout + process.stderr


def test_a_broken_dag_fails_with_all_its_problems(shell: Shell, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "__init__.py").write_text("")
    (tmp_path / "toy" / "prepare.py").write_text("def rows(spark, source): return spark.range(5)\n")
    nowhere = cluster.storage.replace("/trainyard", f"/user/{USER}/sealed")
    text = BROKEN_DAG.format(source=(tmp_path / "x.json").as_uri(), nowhere=nowhere)
    (tmp_path / "toy" / "dag.py").write_text("\n".join(line[4:] for line in text.splitlines()))
    create = f"from trainyard.files import storage; storage.create('{nowhere}', b'a file, no directory')"
    assert shell(f'PYTHONPATH=plugins python -c "{create}"').returncode == 0
    process = shell(f"AIRFLOW__CORE__DAGS_FOLDER={tmp_path} airflow dags test broken")
    output = process.stdout + process.stderr
    assert process.returncode != 0
    assert "'first': Queue root.etl may not use label 'gpu'; queues that may: train." in output
    assert "'second': memory does not fit. One memory container needs 13.5 GB" in output
    assert "it cannot run with /opt/none/bin/python on nodes without a label: sh: " in output
    assert f"{nowhere}/c cannot be written" in output
    assert list_applications(cluster, "trainyard-first") == []


@pytest.mark.parametrize(
    ("placement", "gpus", "problem"),
    [
        (replace(GPUS, queue="root"), 1, "Queue root accepts no applications, the queues below it do: etl, train."),
        (replace(GPUS, node_label="tpu"), 1, "The cluster has no node label 'tpu'; it has gpu."),
        (GPUS, 3, "A container requests 3 GPUs, and the largest that YARN grants has 2."),
    ],
)
def test_what_yarn_refuses_is_a_problem(exports: Exports, placement: Placement, gpus: int, problem: str) -> None:
    assert problem in "\n".join(find_problems(build_group_plan(exports, 2, placement, gpus=gpus)))


@pytest.mark.parametrize(
    ("workers", "placement", "memory", "warning"),
    [
        (2, replace(GPUS, queue="nosuch"), None, "There is no queue 'nosuch' now; the queues are etl, train."),
        (5, GPUS, None, "2 nodes of partition 'gpu' have room for 4 of the 5 containers, each of"),
        (5, GPUS, None, "Write workers=4, or request less in each container."),
        (3, GPUS, Memory(heap="4g"), "have room for 2 of the 3 containers"),
        (2, replace(GPUS, node_label=None), None, "1 node without a label has room for 0 of the 2 containers"),
        (3, replace(GPUS, isolation="whole_node"), None, "have room for 2 of the 3 containers"),
    ],
)
def test_what_waits_for_nodes_or_a_queue_is_a_warning(
    exports: Exports, workers: int, placement: Placement, memory: Memory | None, warning: str
) -> None:
    plan = build_group_plan(exports, workers, placement, memory)
    assert find_problems(plan) == []
    assert warning in "\n".join(find_warnings(plan))


def test_a_queue_that_yarn_does_not_have_is_found_by_the_probe(exports: Exports) -> None:
    plan = exports.plan().with_job(placement=Placement(queue="nosuch"))
    problems = [finding.problem for finding in check_dag([TaskPlan("export", plan)]) if finding.problem]
    assert len(problems) == 1 and "There is no queue 'nosuch'." in problems[0]


@pytest.mark.parametrize(
    ("role", "placement", "where"),
    [
        ("spark.yarn.appMasterEnv", Placement(queue="train", node_label="gpu"), "on nodes without a label"),
        ("spark.executorEnv", Placement(queue="train", node_label="gpu"), "on nodes of partition 'gpu'"),
    ],
    ids=["driver", "executor"],
)
def test_a_user_of_containers_who_may_not_write_is_found_by_the_probe(
    exports: Exports, role: str, placement: Placement, where: str
) -> None:
    """YARN ran containers as a user of its own, whom HDFS refused: each job failed, and preflight found nothing."""
    plan = exports.plan(placement=placement, conf={f"{role}.HADOOP_USER_NAME": "nobody"})
    findings = check_dag([TaskPlan("export", plan, writes=(exports.root,))])
    [problem] = [finding.problem for finding in findings if finding.problem]
    assert problem.startswith(f"ExportOperator 'export': containers {where} cannot access {exports.root}: ")
    assert "Permission denied: user=nobody, access=WRITE" in problem and problem.endswith(probe.ACCESS_FIX)


def test_a_node_whose_gpus_nvidia_smi_does_not_find_is_found_by_the_probe(exports: Exports) -> None:
    plan = exports.plan(placement=GPUS, gpus_per_executor=1, conf={"spark.executorEnv.PATH": "/usr/bin:/bin"})
    problems = [finding.problem for finding in check_dag([TaskPlan("export", plan)]) if finding.problem]
    assert len(problems) == 1
    assert "on node localhost, nvidia-smi found 0 of 1 GPUs. Run it there: the driver must be loaded" in problems[0]


def test_more_gpus_than_any_node_has_are_refused_to_the_probe(exports: Exports) -> None:
    with pytest.raises(TrainyardError, match=r"greater than maximum allowed allocation(.|\n)*yarn.io/gpu"):
        probe.find_gpu_error(live.resource_manager(), "train", "gpu", 512, 3, {})


def test_a_worker_group_that_fits_has_no_problem(exports: Exports) -> None:
    assert find_problems(build_group_plan(exports, 4)) == []
    assert find_problems(build_group_plan(exports, 4, replace(GPUS, workers_per_container=2))) == []
    assert find_problems(build_group_plan(exports, 2, replace(GPUS, isolation="whole_node"))) == []


def test_a_queue_closed_to_the_user_is_a_problem(exports: Exports) -> None:
    [problem] = find_problems(build_group_plan(exports, 2), user="bob")
    assert "User 'bob' may not submit to queue root.train." in problem


def test_busy_nodes_are_not_a_problem(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = live.resource_manager()
    application = manager.submit(name="busy", queue="etl", label=None, memory=6144, command="sleep 600")
    try:
        wait_for(lambda: live.take_snapshot().nodes_of("")[0].free.memory == 0)
        monkeypatch.setattr(probe, "SECONDS", 1.0)
        findings = check_dag([TaskPlan("export", exports.plan())])
    finally:
        manager.kill(application)
    assert [finding.problem for finding in findings if finding.problem] == []
    assert next(f.found for f in findings if f.subject == "Python") == "not checked, the nodes are busy"


def test_pools_are_imported_by_airflow(shell: Shell) -> None:
    process = shell(
        "PYTHONPATH=plugins python -m trainyard pools > $TRAINYARD_HOME/pools.json && "
        "airflow pools import $TRAINYARD_HOME/pools.json >/dev/null && airflow pools get gpu -o json"
    )
    assert process.returncode == 0, process.stderr
    [pool] = json.loads(process.stdout[process.stdout.index("[") :])
    assert (pool["pool"], pool["slots"], pool["include_deferred"]) == ("gpu", "4", "True")
