"""Plans for Spark standalone. On a real cluster: tests/dags/test_standalone.py."""

from __future__ import annotations

import re
import socket
from dataclasses import replace
from typing import Any

import pytest

from trainyard.checks.preflight import check_dag
from trainyard.clusters.registry import find_cluster
from trainyard.clusters.standalone import find_master
from trainyard.errors import TrainyardError
from trainyard.jobs.dry_run import TaskPlan
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime, SparkConnection
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan, build_plan
from trainyard.planning.sizing import Memory
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.usage import resource_usage

MASTER = "spark://master:7077"
RUNTIME = Runtime("/p/driver.py", ("/c/code.zip",), {}, user="etl")


def plan(deploy_mode: str | None = None, **fields: Any) -> Plan:
    key = TaskKey(dag_id="toy", run_id="r1", task_id="train", directory="file:///s/runs/toy/r1")
    cluster = find_cluster(SparkConnection("spark_default", MASTER, queue="etl", deploy_mode=deploy_mode))
    return build_plan(Job("TrainOperator 'train'", key, "file:///s", {}, **fields), cluster, RUNTIME)


def test_a_worker_group_has_one_slot_for_each_worker() -> None:
    placement = Placement(workers_per_container=2)
    planned = plan(workers=4, cores_per_worker=3, gpus=1, placement=placement, memory=Memory(heap="1g", native="2g"))
    assert (
        planned.conf.items()
        >= {
            "spark.cores.max": "12",
            "spark.executor.cores": "6",
            "spark.task.cpus": "3",
            "spark.executor.memory": "1024m",
            "spark.executor.resource.gpu.amount": "2",
            "spark.task.resource.gpu.amount": "1",
            "spark.executorEnv.HADOOP_USER_NAME": "etl",
        }.items()
    )
    assert planned.containers == "1 driver + 4 workers of 3 cores"
    assert not [name for name in planned.conf if "yarn" in name]
    assert planned.files == () and "spark.driver.host" not in planned.conf


@pytest.mark.parametrize(
    ("executors", "cores_max", "parallelism"),
    [
        (Executors(), None, None),
        (Executors(cores=4), None, None),
        (Executors(count=3), "3", "3"),
        (Executors(count=8, min_count=2, cores=4), "32", "8"),
    ],
)
def test_a_stage_has_the_executors_that_it_requests(
    executors: Executors, cores_max: str | None, parallelism: str | None
) -> None:
    conf = plan(executors=executors).conf
    assert (conf.get("spark.cores.max"), conf.get("spark.default.parallelism")) == (cores_max, parallelism)


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"placement": Placement(queue="train")}, "placement.queue='train'"),
        ({"placement": Placement(node_label="gpu")}, "placement.node_label='gpu'"),
        ({"placement": Placement(driver_label="small")}, "placement.driver_label='small'"),
        ({"placement": Placement(node_label="", isolation="whole_node")}, "placement.isolation='whole_node'"),
        ({"environment": "hdfs:///e.tar.gz"}, "environment='hdfs:///e.tar.gz'"),
        ({"grow_memory_to": "8g"}, "grow_memory_to='8g'"),
        ({"workers": 2, "conf": {"spark.cores.max": "9"}}, "conf spark.cores.max='9'"),
    ],
)
def test_an_option_that_only_yarn_has_is_refused_with_what_to_write(fields: dict[str, Any], refused: str) -> None:
    message = (
        rf"TrainOperator 'train': {re.escape(refused)} does not apply on Spark standalone: .*(leave|remove|write) "
    )
    with pytest.raises(TrainyardError, match=message):
        plan(**fields)


def test_all_options_that_only_yarn_has_are_refused_at_once() -> None:
    with pytest.raises(
        TrainyardError, match=r"placement\.queue='train' .*; placement\.node_label='gpu' .*gpus_per_executor\.$"
    ):
        plan(placement=Placement(queue="train", node_label="gpu"), gpus=1)


def test_a_driver_on_the_cluster_is_refused() -> None:
    with pytest.raises(TrainyardError, match=r"deploy-mode cluster, .* Remove deploy-mode from its extra"):
        plan(deploy_mode="cluster")
    assert plan(deploy_mode="client").spark.master == MASTER


def test_environment_variables_reach_driver_and_executors() -> None:
    planned = plan(env_vars={"TZ": "UTC"})
    assert (planned.env["TZ"], planned.conf["spark.executorEnv.TZ"]) == ("UTC", "UTC")


def test_the_requested_cores_are_the_usage() -> None:
    usage = resource_usage.of_local(plan(workers=2, cores_per_worker=2), None, 0.0)
    assert usage.core_seconds == pytest.approx(4 * usage.seconds)


def test_one_master_of_a_pair_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        gone = f"127.0.0.1:{closed.getsockname()[1]}"
        closed.close()
        assert find_master(f"spark://{gone},{address}") == address
        with pytest.raises(TrainyardError, match=rf"no standalone master answers \({gone}: .*refused\)\. Start one"):
            find_master(f"spark://{gone}")


def test_preflight_says_whether_the_master_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        spark = SparkConnection("spark_default", f"spark://127.0.0.1:{server.getsockname()[1]}")
        stages = [replace(plan(), spark=spark), replace(plan(), spark=spark)]
        [answers] = check_dag([TaskPlan(stage.job.task_key.task, stage) for stage in stages])
        assert answers.found == f"{spark.master.removeprefix('spark://')} answers" and not answers.problem
    [refused] = check_dag([TaskPlan("train", stages[0])])
    assert refused.problem.startswith("no standalone master answers")
