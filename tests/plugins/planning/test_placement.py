"""Placement becomes Spark's settings; what can be none is refused."""

from __future__ import annotations

import re

import pytest

from trainyard.errors import TrainyardError
from trainyard.planning import placement
from trainyard.planning.placement import Isolation, Placement


def test_no_placement_sets_nothing() -> None:
    assert placement.settings(Placement()) == {}


def test_labels_of_driver_and_executors() -> None:
    assert placement.settings(Placement(node_label="gpu", driver_label="small")) == {
        "spark.yarn.am.nodeLabelExpression": "small",
        "spark.yarn.executor.nodeLabelExpression": "gpu",
    }


@pytest.mark.parametrize(
    ("isolation", "counts"), [("yarn", True), ("docker", True), ("labels", False), ("whole_node", False)]
)
def test_an_isolation_counts_gpus_or_does_not(isolation: Isolation, counts: bool) -> None:
    assert Placement(isolation=isolation).counts_gpus is counts


def test_docker_runs_driver_and_executors_in_the_image() -> None:
    settings = placement.settings(Placement(isolation="docker", image="repo/torch:1"))
    for prefix in ("spark.yarn.appMasterEnv", "spark.executorEnv"):
        assert settings[f"{prefix}.YARN_CONTAINER_RUNTIME_TYPE"] == "docker"
        assert settings[f"{prefix}.YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] == "repo/torch:1"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
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
        Placement(workers_per_container=3),
        Placement(isolation="labels", node_label="gpu"),
        Placement(isolation="docker", image="repo/torch:1"),
        Placement(isolation="whole_node"),
    ],
)
def test_a_valid_placement_is_accepted(valid: Placement) -> None:
    placement.check(valid, "T 't'")
