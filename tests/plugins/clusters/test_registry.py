"""Which cluster a master belongs to, also of a kind that another package adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainyard.backends.base import Waiting
from trainyard.clusters.base import Cluster
from trainyard.clusters.local import LocalCluster
from trainyard.clusters.registry import GROUP, find_cluster
from trainyard.clusters.standalone import StandaloneCluster
from trainyard.clusters.yarn.cluster import YarnCluster
from trainyard.errors import TrainyardError
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime, SparkConnection
from trainyard.planning.plan import build_plan
from trainyard.schemas.specs.task_key import TaskKey


def connect(master: str) -> SparkConnection:
    return SparkConnection("spark_default", master)


@pytest.mark.parametrize(
    ("master", "kind"),
    [
        ("yarn", YarnCluster),
        ("spark://local:7077", StandaloneCluster),
        ("spark://h1:7077,h2:7077", StandaloneCluster),
        *((master, LocalCluster) for master in ("local", "local[2]", "local[*]", "local[2,3]", "local-cluster[2,1,9]")),
    ],
)
def test_the_cluster_of_a_master(master: str, kind: type[Cluster]) -> None:
    assert type(find_cluster(connect(master))) is kind


@pytest.mark.parametrize("master", ["localhost", "localhost:7077", "local[x]", "yarn://rm", "k8s://x", "spark://h", ""])
def test_another_master_is_named_with_those_that_have_one(master: str) -> None:
    with pytest.raises(TrainyardError) as error:
        find_cluster(connect(master))
    problem = str(error.value)
    assert problem.startswith("connection 'spark_default': the master that its type, host and port name is not")
    assert problem.endswith("Write its host as local[2], spark://HOST:7077 or yarn.")


@pytest.mark.parametrize("master", ["local[2]", "spark://h:7077"])
def test_a_cluster_whose_applications_end_with_their_tasks_resumes_none(master: str) -> None:
    """A task was deferred on YARN, and its connection names another master when it resumes."""
    cluster, key = find_cluster(connect(master)), TaskKey(dag_id="toy", run_id="r1", task_id="train", directory="/s")
    assert not cluster.outlives_tasks and cluster.list_applications() is None
    with pytest.raises(TrainyardError, match=r"'spark_default' names .*, where no application runs on without"):
        cluster.resume_backend("TrainOperator 'train'", key, "/s", lambda: pytest.fail("no plan"), Waiting())


class Kubernetes(Cluster):
    """A kind of another package."""

    NAME = "Kubernetes"
    MASTER = r"k8s://https://\S+"

    def check(self, job: Job) -> None:
        if job.placement.queue:
            raise TrainyardError(f"{job.operator}: placement.queue does not exist on {self.NAME}.")

    def list_settings(self, job: Job, requested: Executors, runtime: Runtime) -> dict[str, str]:
        return {"spark.kubernetes.container.image": "trainyard"}

    def create_backend(self, plan: Any, waiting: Any) -> Any:
        return plan


@pytest.fixture
def kubernetes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package whose entry point is the kind above."""
    metadata = tmp_path / "trainyard_kubernetes-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: trainyard-kubernetes\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\nk8s = {__name__}:Kubernetes\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_another_package_adds_a_kind_of_cluster_by_an_entry_point(kubernetes: None) -> None:
    cluster = find_cluster(connect("k8s://https://api:6443"))
    assert type(cluster).__name__ == "Kubernetes" and cluster.slots is None and not cluster.outlives_tasks
    key = TaskKey(dag_id="toy", run_id="r1", task_id="train", directory="file:///s/runs/toy/r1")
    plan = build_plan(Job("TrainOperator 'train'", key, "file:///s", {}), cluster, Runtime("driver.py", (), {}))
    assert plan.conf["spark.kubernetes.container.image"] == "trainyard"
    assert plan.spark.master == "k8s://https://api:6443"


def test_a_master_that_the_added_kind_does_not_have_is_not_supported(kubernetes: None) -> None:
    with pytest.raises(TrainyardError, match="is not supported"):
        find_cluster(connect("k8s://http://api"))
