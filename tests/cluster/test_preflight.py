"""A DAG held against the live cluster before any of it runs: every problem at once, each with its remedy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from stack.hadoop.cluster import Cluster
from tests.cluster.conftest import Shell, applications
from tests.cluster.jobs import Exports, wait_for
from trainyard.checks import probe
from trainyard.checks.preflight import check_dag
from trainyard.jobs.dry_run import TaskPlan
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory
from trainyard.yarn import cluster as live
from trainyard.yarn import fit

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.timeout(900)]

GANG = Placement(queue="train", node_label="gpu", gpus_per_worker=1)
BROKEN_DAG = """
    from airflow.sdk import DAG
    from trainyard.operators import ExportOperator, PreflightOperator
    from trainyard.placement import Placement
    from trainyard.sizing import Memory

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


def problems(plan: Plan, user: str | None = None) -> list[str]:
    snapshot = live.snapshot()
    snapshot = replace(snapshot, user=user) if user else snapshot
    return [finding.problem for finding in fit.check_plan(plan, snapshot) if finding.problem]


def gang(exports: Exports, workers: int, placement: Placement = GANG, memory: Memory | None = None) -> Plan:
    return replace(exports.plan(memory=memory), placement=placement, workers=workers, min_workers=workers)


def test_the_example_fits(cluster: Cluster, shell: Shell) -> None:
    before = {app["id"] for app in applications(cluster)}
    done = shell("PYTHONPATH=plugins:. python -m trainyard preflight digits")
    assert done.returncode == 0, done.stdout + done.stderr
    table = done.stdout
    assert "DOES NOT FIT" not in table
    assert "2 x 3072 MB, 1 core, 1 GPU" in table and "12288 MB, 8 cores, 4 GPUs" in table
    assert "fsspec, numpy, pyarrow, pydantic, torch" in table
    assert f"{cluster.storage}  " in table
    new = [app["name"] for app in applications(cluster) if app["id"] not in before]
    assert set(new) == {"trainyard-probe"}, "a preflight runs nothing of the DAG"


def test_the_doctor_finds_nodes_gpus_and_the_python_on_them(cluster: Cluster, shell: Shell) -> None:
    done = shell("PYTHONPATH=plugins:. python -m trainyard doctor")
    lines = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert "2 nodes, 12288 MB, 4 GPUs, by queue train" in lines["label gpu"]
    assert "imports fsspec, numpy, pyarrow, pydantic, torch" in lines["Python there, gpu"]
    assert lines["clock"].endswith("ok") and lines["queue"].endswith("ok")
    assert lines["triggerer"].endswith("FIX"), "none runs here"
    assert done.returncode == 1 and done.stdout.count("FIX") == 1, done.stdout + done.stderr


def test_a_broken_dag_fails_with_all_its_problems(shell: Shell, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "__init__.py").write_text("")
    (tmp_path / "toy" / "prepare.py").write_text("def rows(spark, source): return spark.range(5)\n")
    nowhere = cluster.storage.replace("/trainyard", "/other/sealed")
    text = BROKEN_DAG.format(source=(tmp_path / "x.json").as_uri(), nowhere=nowhere)
    (tmp_path / "toy" / "dag.py").write_text("\n".join(line[4:] for line in text.splitlines()))
    seal = f"from trainyard.contract import storage; storage.create('{nowhere}', b'a file, no directory')"
    assert shell(f'PYTHONPATH=plugins python -c "{seal}"').returncode == 0
    done = shell(f"AIRFLOW__CORE__DAGS_FOLDER={tmp_path} airflow dags test broken")
    said = done.stdout + done.stderr
    assert done.returncode != 0
    assert "'first': Queue root.etl may not use label 'gpu'; of the queues, these may: train." in said
    assert "'second': memory does not fit. One memory container needs 13.5 GB" in said
    assert "cannot import what the job imports: /bin/bash: line 1: /opt/none/bin/python: No such file" in said
    assert f"{nowhere}/c cannot be written" in said
    assert applications(cluster, "trainyard-first") == []


@pytest.mark.parametrize(
    ("workers", "placement", "memory", "problem"),
    [
        (2, replace(GANG, queue="nosuch"), None, "There is no queue 'nosuch'; there are etl, train."),
        (2, replace(GANG, queue="root"), None, "Queue root takes no applications, the queues below it do: etl, train."),
        (2, replace(GANG, node_label="tpu"), None, "The cluster has no node label 'tpu', but: gpu."),
        (5, GANG, None, "2 nodes of partition 'gpu' hold 4 of the 5 containers that must run at once"),
        (5, GANG, None, "Write workers=4, or ask for less in each container."),
        (3, GANG, Memory(heap="4g"), "hold 2 of the 3 containers"),
        (2, replace(GANG, node_label=None), None, "No node without a label offers yarn.io/gpu."),
        (2, replace(GANG, gpus_per_worker=3), None, "hold 0 of the 2 containers"),
        (3, replace(GANG, isolation="whole_node"), None, "hold 2 of the 3 containers"),
    ],
)
def test_what_can_never_run_is_told(
    exports: Exports, workers: int, placement: Placement, memory: Memory | None, problem: str
) -> None:
    assert problem in "\n".join(problems(gang(exports, workers, placement, memory)))


def test_a_gang_that_fits_has_no_problem(exports: Exports) -> None:
    assert problems(gang(exports, 4)) == []
    assert problems(gang(exports, 4, replace(GANG, workers_per_container=2))) == []
    assert problems(gang(exports, 2, replace(GANG, isolation="whole_node"))) == []


def test_a_queue_closed_to_the_user_is_told(exports: Exports) -> None:
    [problem] = problems(gang(exports, 2), user="bob")
    assert "User 'bob' may not submit to queue root.train." in problem


def test_busy_nodes_are_no_problem(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = live.resource_manager()
    whole = manager.submit(name="busy", queue="etl", label=None, memory=6144, command="sleep 600")
    try:
        wait_for(lambda: live.snapshot().nodes_of("")[0].free.memory == 0)
        monkeypatch.setattr(probe, "SECONDS", 1.0)
        found = check_dag([TaskPlan("export", exports.plan())])
    finally:
        manager.kill(whole)
    assert [finding.problem for finding in found if finding.problem] == []
    assert next(f.found for f in found if f.subject == "Python") == "not looked at, the nodes are busy"


def test_pools_are_what_airflow_imports(shell: Shell) -> None:
    done = shell(
        "PYTHONPATH=plugins python -m trainyard pools > $TRAINYARD_HOME/pools.json && "
        "airflow pools import $TRAINYARD_HOME/pools.json >/dev/null && airflow pools get gpu -o json"
    )
    assert done.returncode == 0, done.stderr
    [pool] = json.loads(done.stdout[done.stdout.index("[") :])
    assert (pool["pool"], pool["slots"], pool["include_deferred"]) == ("gpu", "4", "True")
