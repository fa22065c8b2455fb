"""Preflight on a cluster whose scheduler shows less than a CapacityScheduler. On a real one: tests/cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.resource_managers import Answer, Server, serve
from tests.plugins.snapshots import group_plan
from trainyard.checks import doctor
from trainyard.checks.preflight import check_dag
from trainyard.jobs.dry_run import TaskPlan
from trainyard.planning.finding import Finding
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan

FAIR = {"scheduler": {"schedulerInfo": {"type": "fairScheduler", "rootQueue": {"queueName": "root"}}}}
ANSWERS: dict[str, Any] = {
    "/ws/v1/cluster/nodes": {"nodes": None},
    "/ws/v1/cluster/get-node-labels": {},
    "/ws/v1/cluster/scheduler": FAIR,
    "/ws/v1/cluster/info": {},
    "/conf": {"properties": []},
}


@pytest.fixture
def fair_scheduler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    """A ResourceManager with a FairScheduler, to which the client's configuration points."""
    with serve(lambda _, path, __: Answer(ANSWERS[path])) as server:
        address = server.url.removeprefix("http://")
        site = f"<property><name>yarn.resourcemanager.webapp.address</name><value>{address}</value></property>"
        (tmp_path / "yarn-site.xml").write_text(f"<configuration>{site}</configuration>")
        monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
        yield server


def shipped(tmp_path: Path) -> Plan:
    """A plan without GPUs whose Python is shipped with the application, so that no node is probed."""
    python = {"PYSPARK_PYTHON": "./env/bin/python"}
    return replace(group_plan(), env=python).with_job(storage=tmp_path.as_uri(), placement=Placement(), gpus=0)


def by_subject(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.subject: finding for finding in findings}


def test_preflight_on_a_fair_scheduler_names_what_could_not_be_checked(fair_scheduler: Server, tmp_path: Path) -> None:
    stage = TaskPlan("train", shipped(tmp_path), writes=(tmp_path.as_uri(),))
    findings = by_subject(check_dag([stage]))
    assert [finding.problem for finding in findings.values() if finding.problem] == []
    assert findings["cluster"].warning == (
        "TrainOperator 'train': queue, node labels, memory and GPUs were not checked: the cluster's scheduler is a "
        "fairScheduler, not a CapacityScheduler."
    )
    assert findings["storage"].found == "writable"


@pytest.mark.parametrize("broken", [{"scheduler": {}}, {"scheduler": FAIR["scheduler"], "nodes": 3}, None])
def test_an_error_of_the_cluster_is_a_finding_beside_those_of_the_storage(
    fair_scheduler: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Any
) -> None:
    monkeypatch.setitem(ANSWERS, "/ws/v1/cluster/nodes", broken)
    monkeypatch.setitem(ANSWERS, "/ws/v1/cluster/scheduler", broken)
    findings = by_subject(check_dag([TaskPlan("train", shipped(tmp_path), writes=(tmp_path.as_uri(),))]))
    assert findings["cluster"].problem.startswith("the cluster could not be checked, or not completely: ")
    assert findings["storage"].found == "writable"


def test_a_stage_with_preflight_off_is_not_checked_against_the_cluster(tmp_path: Path) -> None:
    plan = shipped(tmp_path).with_job(preflight="off")
    assert check_dag([TaskPlan("train", plan)]) == []


@pytest.mark.parametrize("option", ["jars", "files"])
@pytest.mark.parametrize("uri", ["{0}/no/such.jar", "file:{0}/no/such.jar", "file://{0}/no%20such.jar", "{0}/*.csv#x"])
def test_a_file_that_does_not_exist_where_airflow_runs_is_a_problem(tmp_path: Path, option: str, uri: str) -> None:
    uri = uri.format(tmp_path)
    plan = shipped(tmp_path).with_job(preflight="off")
    plan = plan.with_job(jars=(uri,)) if option == "jars" else replace(plan, files=(uri,))
    [finding] = check_dag([TaskPlan("train", plan)])
    assert (finding.stage, finding.subject, finding.needed, finding.found) == ("train", option, uri, "missing")
    assert finding.problem.startswith(f"TrainOperator 'train': {option}={uri!r} does not exist on this machine, ")


@pytest.mark.parametrize(
    "uri",
    [
        "{0}/one two.jar", "{0}/one two.jar#alias", "{0}/*.jar", "file://{0}/one%20two.jar", "file:{0}/one%20two.jar",
        "hdfs:///jars/x.jar", "https://repository.example/x.jar", "local:/opt/x.jar", "{{{{ params.jar }}}}",
    ],
)  # fmt: skip
def test_files_that_exist_or_that_nodes_read_themselves_are_no_problem(tmp_path: Path, uri: str) -> None:
    (tmp_path / "one two.jar").touch()
    plan = shipped(tmp_path).with_job(preflight="off", jars=(uri.format(tmp_path),))
    assert check_dag([TaskPlan("train", plan)]) == []


@pytest.mark.airflow
def test_the_doctor_on_a_fair_scheduler_checks_the_rest(
    fair_scheduler: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, fields in {
        "SPARK_DEFAULT": {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}},
        "TRAINYARD_DEFAULT": {"conn_type": "trainyard", "extra": {"storage": tmp_path.as_uri()}},
    }.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(fields))
    checks = {check.subject: check for check in doctor.run_checks("trainyard_default", "spark_default")}
    assert checks["ResourceManager"].fix == "" and checks["clock"].fix == ""
    assert checks["queues and nodes"].result.startswith("not checked: the cluster's scheduler is a fairScheduler")
