"""The digits example on a real YARN and HDFS, unchanged: only the connections are others."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG

from stack.hadoop.cluster import Cluster
from stack.hadoop.containers import Container, Watch
from tests.cluster.conftest import ROOT, Shell, applications
from tests.cluster.faults import RANK, leftovers, survived
from tests.cluster.jobs import finished, planned
from trainyard import storage
from trainyard.operators import TrainOperator
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.schemas import manifest, model_artifact, run_record
from trainyard.usage import resource_usage

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def containers(cluster: Cluster, shell: Shell) -> list[Container]:
    """The containers of one run of the example."""
    with Watch(cluster) as watch:
        done = shell("airflow dags test digits")
    assert done.returncode == 0, done.stdout[-6000:]
    return watch.containers


def of(containers: list[Container], stage: str, driver: bool) -> list[Container]:
    return [c for c in containers if c.application == f"digits.{stage}" and c.driver == driver]


def test_ranks_run_in_the_partition_with_a_gpu_each(containers: list[Container]) -> None:
    ranks = of(containers, "train", driver=False)
    assert len(ranks) == 2
    assert {(c.label, c.gpus, c.queue) for c in ranks} == {("gpu", 1, "train")}


def test_nothing_else_holds_a_gpu_or_a_node_that_has_one(containers: list[Container]) -> None:
    others = [c for c in containers if c not in of(containers, "train", driver=False)]
    assert {c.application for c in others} == {f"digits.{s}" for s in ("export", "train", "evaluate", "predict")}
    assert {(c.label, c.gpus) for c in others} == {("", 0)}
    assert {c.queue for c in others if c.application != "digits.train"} == {"etl"}


def test_batches_model_and_records_lie_on_hdfs(containers: list[Container], cluster: Cluster) -> None:
    assert manifest.read_current(storage.join(cluster.storage, "digits/dataset")).rows == 1797
    assert model_artifact.read_current(storage.join(cluster.storage, "digits/model")).metrics["accuracy"] > 0.95
    [run] = storage.list_names(storage.join(cluster.storage, "runs/digits"))
    found = run_record.read_run(storage.join(cluster.storage, "runs/digits", run))
    assert {r.task_key.task: r.status for r in found} == dict.fromkeys(
        ("export", "train", "evaluate", "predict"), "succeeded"
    )
    assert next(r for r in found if r.job == "evaluate").output["metrics"]["accuracy"] >= 0.95


def test_what_each_application_held_is_kept(containers: list[Container], cluster: Cluster) -> None:
    [run] = storage.list_names(storage.join(cluster.storage, "runs/digits"))
    held = {
        one.task_key.task: one for one in resource_usage.read_run(storage.join(cluster.storage, "runs/digits", run))
    }
    assert set(held) == {"export", "train", "evaluate", "predict"}
    assert {task: one.queue for task, one in held.items()} == dict.fromkeys(held, "root.etl") | {"train": "root.train"}
    assert held["train"].gpu_seconds > 0 == held["export"].gpu_seconds
    for one in held.values():
        assert one.core_seconds > 0 and one.memory_mb_seconds > 0
        assert 0 < one.working < one.seconds and one.page.startswith("http")


def trained(task: str, **options: Any) -> TrainOperator:
    """A short training on the batches of the run above."""
    dag = DAG("again", schedule=None)
    dag.fileloc = str(ROOT / "dags" / "digits" / "dag.py")
    return TrainOperator(
        task_id=task, dag=dag, recipe="digits.recipe:convnet", dataset="digits/dataset", model=f"again/{task}",
        workers=2, **options,
    )  # fmt: skip


def test_ranks_that_share_a_container_share_its_gpus(containers: list[Container], configured: Cluster) -> None:
    shared = Placement(queue="train", node_label="gpu", gpus_per_worker=1, workers_per_container=2)
    operator = trained("shared", epochs=1, memory=Memory(heap="512m", native="3g"), placement=shared)
    with Watch(configured) as watch:
        done = finished(planned(operator, configured.storage))
    assert (done.status, done.output["workers"]) == ("succeeded", 2)
    [ranks] = [c for c in watch.containers if c.application == "again.shared" and not c.driver]
    assert (ranks.label, ranks.gpus, ranks.cores) == ("gpu", 2, 2)


def test_a_gang_that_lost_a_rank_starts_again_inside_its_application(
    containers: list[Container], configured: Cluster
) -> None:
    plan = planned(trained("hurt", epochs=3, placement=Placement(queue="train", node_label="gpu")), configured.storage)
    record = survived(plan, configured, RANK)
    assert record.output["restarts"] == 1
    assert len(applications(configured, plan.tag)) == 1
    assert (
        model_artifact.read_current(storage.join(configured.storage, "again/hurt")).weights_sha256
        == record.output["weights_sha256"]
    )
    assert leftovers(plan, configured) == []
