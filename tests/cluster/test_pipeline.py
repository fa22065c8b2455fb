"""The digits example runs on a real YARN and HDFS, with only the connections changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from stack.hadoop.cluster import Cluster
from stack.hadoop.containers import Container, ContainerWatch
from tests.cluster.conftest import ROOT, Shell, list_applications
from tests.cluster.jobs import build_plan, run_to_end
from tests.cluster.recovery.faults import find_leftovers, kill_worker, run_with_fault
from trainyard.files import storage, uris
from trainyard.operators import TrainOperator
from trainyard.planning.placement import Placement
from trainyard.planning.sizing import Memory
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest
from trainyard.schemas.runs import checkpoint, events, run_record
from trainyard.trainer.group.worker import checkpoint_root
from trainyard.usage import resource_usage

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def containers(cluster: Cluster, shell: Shell) -> list[Container]:
    """The containers of one run of the example."""
    with ContainerWatch(cluster) as watch:
        process = shell("airflow dags test digits")
    assert process.returncode == 0, process.stdout[-6000:]
    return watch.containers


def select(containers: list[Container], stage: str, driver: bool) -> list[Container]:
    return [c for c in containers if c.application == f"digits.{stage}" and c.driver == driver]


def test_workers_run_in_the_partition_with_a_gpu_each(containers: list[Container]) -> None:
    workers = select(containers, "train", driver=False)
    assert len(workers) >= 2  # YARN may grant a container that Spark no longer needs and gives back (YarnAllocator)
    assert {(c.label, c.gpus, c.queue) for c in workers} == {("gpu", 1, "train")}


def test_no_other_container_uses_a_gpu_or_a_node_with_one(containers: list[Container]) -> None:
    others = [c for c in containers if c not in select(containers, "train", driver=False)]
    assert {c.application for c in others} == {f"digits.{s}" for s in ("export", "train", "evaluate", "predict")}
    assert {(c.label, c.gpus) for c in others} == {("", 0)}
    assert {c.queue for c in others if c.application != "digits.train"} == {"etl"}


def test_dataset_model_and_records_are_on_hdfs(containers: list[Container], cluster: Cluster) -> None:
    assert manifest.read_current(uris.join(cluster.storage, "digits/dataset")).rows == 1797
    assert model_artifact.read_current(uris.join(cluster.storage, "digits/model")).metrics["accuracy"] > 0.95
    [run] = storage.list_names(uris.join(cluster.storage, "runs/digits"))
    records = run_record.read_run(uris.join(cluster.storage, "runs/digits", run))
    assert {record.task_key.task: record.status for record in records} == dict.fromkeys(
        ("export", "train", "evaluate", "promote", "predict"), "succeeded"
    )
    assert next(record for record in records if record.job == "evaluate").output["metrics"]["accuracy"] >= 0.95


def test_the_resource_usage_of_each_application_is_stored(containers: list[Container], cluster: Cluster) -> None:
    [run] = storage.list_names(uris.join(cluster.storage, "runs/digits"))
    usage = {
        entry.task_key.task: entry for entry in resource_usage.read_run(uris.join(cluster.storage, "runs/digits", run))
    }
    assert set(usage) == {"export", "train", "evaluate", "predict"}
    # Hadoop before 3.4 reports the name of a queue, and not its path.
    queues = {task: entry.queue.removeprefix("root.") for task, entry in usage.items()}
    assert queues == dict.fromkeys(usage, "etl") | {"train": "train"}
    assert usage["train"].gpu_seconds > 0 == usage["export"].gpu_seconds
    for entry in usage.values():
        assert entry.core_seconds > 0 and entry.memory_mb_seconds > 0
        assert 0 < entry.busy_seconds < entry.seconds and entry.page.startswith("http")


def build_training(
    task: str, folder: Path = ROOT / "dags", recipe: str = "digits.recipe:convnet", **options: Any
) -> TrainOperator:
    """Return a short training on the dataset of the run above."""
    dag = DAG("again", schedule=None)
    dag.fileloc = str(folder / recipe.partition(".")[0] / "dag.py")
    return TrainOperator(
        task_id=task, dag=dag, recipe=recipe, dataset="digits/dataset", model=f"again/{task}", workers=2, **options
    )


@pytest.mark.full
def test_workers_in_one_container_share_its_gpus(containers: list[Container], configured: Cluster) -> None:
    shared = Placement(queue="train", node_label="gpu", workers_per_container=2)
    memory = Memory(heap="512m", native="3g")
    operator = build_training("shared", epochs=1, memory=memory, placement=shared, gpus_per_worker=1)
    with ContainerWatch(configured) as watch:
        record = run_to_end(build_plan(operator, configured.storage))
    assert (record.status, record.output["workers"]) == ("succeeded", 2)
    [container] = [c for c in watch.containers if c.application == "again.shared" and not c.driver]
    assert (container.label, container.gpus, container.cores) == ("gpu", 2, 2)


@pytest.mark.full
def test_a_worker_group_that_lost_a_worker_resumes_within_its_application(
    containers: list[Container], configured: Cluster
) -> None:
    """Each worker verifies many files of the checkpoint, by several threads, as its first use of HDFS."""
    operator = build_training(
        "hurt", ROOT / "tests/cluster/dags", "deep.recipe:network", epochs=20,
        memory=Memory(heap="512m", native="2g"), placement=Placement(queue="train", node_label="gpu"),
    )  # fmt: skip
    plan = build_plan(operator, configured.storage)
    root = checkpoint_root(plan.job.task_key)

    def kill_after_a_checkpoint(cluster: Cluster, application: str) -> bool:
        saved = (storage.exists(uris.join(uri, checkpoint.INDEX)) for *_, uri in checkpoint.list_checkpoints(root))
        return any(saved) and kill_worker(cluster, application)

    record = run_with_fault(plan, configured, kill_after_a_checkpoint)
    assert record.output["restarts"] == 1
    files = storage.list_names(checkpoint.list_checkpoints(root)[0].uri)
    assert [sum(name.startswith(f"__{rank}_") for name in files) >= 20 for rank in range(2)] == [True, True]
    epochs = events.read_counters(plan.job.task_key.directory, "hurt", "worker 0", ["epoch"])
    assert [event["args"]["epoch"] for event in epochs].count(1) == 1, "the second group does not begin again"
    assert len(list_applications(configured, plan.tag)) == 1
    assert (
        model_artifact.read_current(uris.join(configured.storage, "again/hurt")).weights_sha256
        == record.output["weights_sha256"]
    )
    assert find_leftovers(plan, configured) == []
