"""Placement becomes Spark's settings; what can be none is refused."""

from __future__ import annotations

import re

import pytest

from trainyard.errors import TrainyardError
from trainyard.planning import placement
from trainyard.planning.placement import Placement


def test_nothing_asked_for_sets_nothing() -> None:
    assert placement.settings(Placement()) == {}
    assert placement.files(Placement()) == ()


def test_labels_of_driver_and_executors() -> None:
    assert placement.settings(Placement(node_label="gpu", driver_label="small")) == {
        "spark.yarn.am.nodeLabelExpression": "small",
        "spark.yarn.executor.nodeLabelExpression": "gpu",
    }


def test_yarn_hands_out_gpus_that_a_script_discovers() -> None:
    chosen = Placement(node_label="gpu", gpus_per_worker=2)
    assert placement.settings(chosen) == {
        "spark.yarn.executor.nodeLabelExpression": "gpu",
        "spark.executor.resource.gpu.amount": "2",
        "spark.executor.resource.gpu.discoveryScript": "./gpus.sh",
        "spark.task.resource.gpu.amount": "2",
    }
    assert placement.files(chosen) == (str(placement.DISCOVERY),)


def test_labels_alone_ask_for_no_gpu() -> None:
    chosen = Placement(node_label="gpu", gpus_per_worker=1, isolation="labels")
    assert placement.settings(chosen) == {"spark.yarn.executor.nodeLabelExpression": "gpu"}
    assert placement.files(chosen) == ()


def test_a_whole_node_asks_for_no_gpu_either() -> None:
    chosen = Placement(node_label="gpu", gpus_per_worker=2, isolation="whole_node")
    assert placement.settings(chosen) == {"spark.yarn.executor.nodeLabelExpression": "gpu"}


def test_docker_runs_driver_and_executors_in_the_image() -> None:
    found = placement.settings(Placement(gpus_per_worker=1, isolation="docker", image="repo/torch:1"))
    for prefix in ("spark.yarn.appMasterEnv", "spark.executorEnv"):
        assert found[f"{prefix}.YARN_CONTAINER_RUNTIME_TYPE"] == "docker"
        assert found[f"{prefix}.YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] == "repo/torch:1"
    assert found["spark.executor.resource.gpu.amount"] == "1"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (Placement(isolation="mig"), "T 't': isolation='mig' is none of yarn, labels, whole_node, docker."),  # type: ignore[arg-type]
        (Placement(gpus_per_worker=-1), "T 't': gpus_per_worker=-1 is negative; write 0"),
        (Placement(workers_per_container=0), "T 't': workers_per_container=0; write 1, or how many share a container."),
        (Placement(isolation="docker"), "T 't': isolation='docker' needs image="),
        (Placement(isolation="labels"), "T 't': isolation='labels' rests on the nodes of a partition; name it"),
    ],
)
def test_what_can_be_no_placement_is_refused(wrong: Placement, message: str) -> None:
    with pytest.raises(TrainyardError, match=re.escape(message)):
        placement.check(wrong, "T 't'")
