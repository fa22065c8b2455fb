"""The digits example on an HDFS with a pair of NameNodes, one of which fails: a row of `make matrix`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from stack.hadoop.cluster import Cluster
from stack.hadoop.config import NAMESERVICE, STANDBY_NAME_NODE
from tests.cluster.conftest import ROOT, Shell, list_applications
from tests.cluster.jobs import wait_for
from trainyard.files import uris
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest

pytestmark = [pytest.mark.cluster, pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.launch(tmp_path_factory.mktemp("hadoop"), standbys=[STANDBY_NAME_NODE]) as cluster:
        yield cluster


def test_doctor_writes_to_the_storage(shell: Shell) -> None:
    assert f"hdfs://{NAMESERVICE}/trainyard, writable" in shell("trainyard doctor").stdout


def test_a_pipeline_survives_the_failover_of_its_name_node(configured: Cluster, environment: dict[str, str]) -> None:
    """The active NameNode is killed while the training runs; datasets, checkpoints and the model are on HDFS."""
    assert configured.storage == f"hdfs://{NAMESERVICE}/trainyard"
    script = '. stack/local/env.sh && . "$CLUSTER_ENV" && airflow dags test digits'
    with subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", script], cwd=ROOT, env=os.environ | environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as run:  # fmt: skip
        wait_for(lambda: is_training(configured) or run.poll() is not None, 600)
        configured.kill("namenode")
        configured.activate(STANDBY_NAME_NODE.name)
        printed = run.communicate()[0]
    assert run.returncode == 0, printed[-6000:]
    assert manifest.read_current(uris.join(configured.storage, "digits/dataset")).rows == 1797
    assert model_artifact.read_current(uris.join(configured.storage, "digits/model")).metrics["accuracy"] > 0.95
    stages = [app for app in list_applications(configured) if str(app["name"]).startswith("digits.")]
    assert [app["finalStatus"] for app in stages] == ["SUCCEEDED"] * 4


def is_training(cluster: Cluster) -> bool:
    return any(app["name"] == "digits.train" and app["state"] == "RUNNING" for app in list_applications(cluster))
