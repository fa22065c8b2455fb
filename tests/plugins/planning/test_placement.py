"""Placement becomes Spark's settings; what can be none is refused."""

from __future__ import annotations

import re

import pytest

from trainyard.errors import TrainyardError
from trainyard.planning import placement
from trainyard.planning.placement import Placement


def test_no_placement_sets_nothing() -> None:
    assert placement.settings(Placement()) == {}
    assert placement.files(Placement()) == ()


def test_labels_of_driver_and_executors() -> None:
    assert placement.settings(Placement(node_label="gpu", driver_label="small")) == {
        "spark.yarn.am.nodeLabelExpression": "small",
        "spark.yarn.executor.nodeLabelExpression": "gpu",
    }


def test_with_isolation_yarn_a_script_discovers_the_assigned_gpus() -> None:
    chosen = Placement(node_label="gpu", gpus_per_worker=2)
    assert placement.settings(chosen) == {
        "spark.yarn.executor.nodeLabelExpression": "gpu",
        "spark.executor.resource.gpu.amount": "2",
        "spark.executor.resource.gpu.discoveryScript": "./gpus.sh",
        "spark.task.resource.gpu.amount": "2",
    }
    assert placement.files(chosen) == (str(placement.DISCOVERY),)


def test_isolation_labels_requests_no_gpu() -> None:
    chosen = Placement(node_label="gpu", gpus_per_worker=1, isolation="labels")
    assert placement.settings(chosen) == {"spark.yarn.executor.nodeLabelExpression": "gpu"}
    assert placement.files(chosen) == ()


def test_isolation_whole_node_requests_no_gpu() -> None:
    chosen = Placement(node_label="gpu", gpus_per_worker=2, isolation="whole_node")
    assert placement.settings(chosen) == {"spark.yarn.executor.nodeLabelExpression": "gpu"}


def test_docker_runs_driver_and_executors_in_the_image() -> None:
    settings = placement.settings(Placement(gpus_per_worker=1, isolation="docker", image="repo/torch:1"))
    for prefix in ("spark.yarn.appMasterEnv", "spark.executorEnv"):
        assert settings[f"{prefix}.YARN_CONTAINER_RUNTIME_TYPE"] == "docker"
        assert settings[f"{prefix}.YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] == "repo/torch:1"
    assert settings["spark.executor.resource.gpu.amount"] == "1"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Placement(gpus_per_worker=-1), "T 't': placement.gpus_per_worker=-1 is negative; write 0"),
        (Placement(workers_per_container=0), "T 't': placement.workers_per_container=0 is not valid; write 1 or more."),
        (Placement(isolation="docker"), "T 't': placement.isolation='docker' needs image="),
        (
            Placement(isolation="labels"),
            "T 't': placement.isolation='labels' needs node_label=, the partition with the GPUs.",
        ),
    ],
)
def test_an_invalid_placement_is_refused(wrong: Placement, message: str) -> None:
    with pytest.raises(TrainyardError, match=re.escape(message)):
        placement.check(wrong, "T 't'")


@pytest.mark.parametrize(
    "valid",
    [
        Placement(),
        Placement(gpus_per_worker=2, workers_per_container=3),
        Placement(isolation="labels", node_label="gpu"),
        Placement(isolation="docker", image="repo/torch:1"),
        Placement(isolation="whole_node"),
    ],
)
def test_a_valid_placement_is_accepted(valid: Placement) -> None:
    placement.check(valid, "T 't'")


def test_a_container_requests_the_gpus_of_all_its_workers() -> None:
    assert Placement(gpus_per_worker=2, workers_per_container=3).gpus_per_container == 6
