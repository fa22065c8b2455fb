"""Decide on which nodes containers run, and how a worker is limited to its GPUs. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import PositiveInt, StringConstraints

from trainyard.errors import TrainyardError

Name = Annotated[str, StringConstraints(min_length=1)]
Isolation = Literal["yarn", "labels", "whole_node", "docker"]
DISCOVERY = Path(__file__).parent / "gpus.sh"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the containers of an application run on YARN. It does not apply on a local master.

    Args:
        queue: The queue. By default that of the Spark connection.
        node_label: The partition of the executors, which the workers run in.
        driver_label: The partition of the application master, which has no GPU.
        workers_per_container: How many workers share a container, its memory and its GPUs.
        isolation: How workers are limited to their own GPUs. `yarn`: YARN counts and assigns yarn.io/gpu. `labels`: the
            nodes of the partition have as many cores as GPUs; only the label is requested. `whole_node`: a container
            has all memory of its node, and its workers share the GPUs there. `docker`: a container of `image` with the
            GPUs that YARN assigns.
        image: The image of the containers, with isolation `docker`.
    """

    queue: Name | None = None
    node_label: Name | None = None
    driver_label: Name | None = None
    workers_per_container: PositiveInt = 1
    isolation: Isolation = "yarn"
    image: Name | None = None

    @property
    def counts_gpus(self) -> bool:
        """Whether containers request their GPUs from YARN."""
        return self.isolation in ("yarn", "docker")


def check(placement: Placement, operator: str) -> None:
    """Check how the fields of a placement go together. Raises TrainyardError if they do not."""
    where = f"{operator}: placement"
    if placement.workers_per_container < 1:
        raise TrainyardError(
            f"{where}.workers_per_container={placement.workers_per_container} is not valid; write 1 or more."
        )
    if placement.isolation == "docker" and not placement.image:
        raise TrainyardError(f"{where}.isolation='docker' needs image=, the image that the workers run in.")
    if placement.isolation == "labels" and not placement.node_label:
        raise TrainyardError(f"{where}.isolation='labels' needs node_label=, the partition with the GPUs.")


def settings(placement: Placement) -> dict[str, str]:
    """Return Spark's settings for a placement on YARN, without the queue, which spark-submit has an option for."""
    conf: dict[str, str] = {}
    if placement.driver_label:
        conf["spark.yarn.am.nodeLabelExpression"] = placement.driver_label
    if placement.node_label:
        conf["spark.yarn.executor.nodeLabelExpression"] = placement.node_label
    if placement.isolation == "docker":
        for prefix in ("spark.yarn.appMasterEnv", "spark.executorEnv"):
            conf[f"{prefix}.YARN_CONTAINER_RUNTIME_TYPE"] = "docker"
            conf[f"{prefix}.YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] = str(placement.image)
    return conf
