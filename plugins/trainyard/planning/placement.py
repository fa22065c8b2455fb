"""On which nodes an application's containers run, and how a rank comes by its GPU. Pure functions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from trainyard.errors import TrainyardError

Isolation = Literal["yarn", "labels", "whole_node", "docker"]
DISCOVERY = Path(__file__).parent / "gpus.sh"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where one application's containers run on YARN. On a local master it does not apply.

    :param queue: the queue it is submitted to; by default that of the Spark connection
    :param node_label: partition of the executors: of the ranks, when it is a gang
    :param driver_label: partition of the application master, which holds no GPU
    :param gpus_per_worker: GPUs of each rank
    :param workers_per_container: ranks that share one container, its memory and its GPUs
    :param isolation: what keeps a rank to its own GPUs: `yarn` (YARN counts and hands out yarn.io/gpu),
        `labels` (nodes of the partition have as many cores as GPUs; nothing is asked for but the label),
        `whole_node` (a container takes all memory of its node, and its ranks share the GPUs there),
        `docker` (a container of `image` with the GPUs that YARN hands out)
    :param image: what containers run in, with isolation `docker`
    """

    queue: str | None = None
    node_label: str | None = None
    driver_label: str | None = None
    gpus_per_worker: int = 0
    workers_per_container: int = 1
    isolation: Isolation = "yarn"
    image: str | None = None

    @property
    def gpus_per_container(self) -> int:
        """GPUs that YARN is asked for, for each container; none where it does not count them."""
        counted = self.isolation in ("yarn", "docker")
        return self.gpus_per_worker * self.workers_per_container if counted else 0


def check(placement: Placement, operator: str) -> None:
    """Raises TrainyardError for a placement that can be none."""
    if placement.isolation not in get_args(Isolation):
        raise TrainyardError(
            f"{operator}: isolation={placement.isolation!r} is none of {', '.join(get_args(Isolation))}."
        )
    if placement.gpus_per_worker < 0:
        raise TrainyardError(
            f"{operator}: gpus_per_worker={placement.gpus_per_worker} is negative; write 0 for ranks without a GPU."
        )
    if placement.workers_per_container < 1:
        raise TrainyardError(
            f"{operator}: workers_per_container={placement.workers_per_container}; write 1, or how many share a container."
        )
    if placement.isolation == "docker" and not placement.image:
        raise TrainyardError(f"{operator}: isolation='docker' needs image=, what the ranks run in.")
    if placement.isolation == "labels" and not placement.node_label:
        raise TrainyardError(
            f"{operator}: isolation='labels' rests on the nodes of a partition; name it with node_label=."
        )


def settings(placement: Placement) -> dict[str, str]:
    """Spark's settings for a placement on YARN, but for the queue: spark-submit has an option for that, which wins."""
    conf: dict[str, str] = {}
    if placement.driver_label:
        conf["spark.yarn.am.nodeLabelExpression"] = placement.driver_label
    if placement.node_label:
        conf["spark.yarn.executor.nodeLabelExpression"] = placement.node_label
    if placement.gpus_per_container:
        conf |= {
            "spark.executor.resource.gpu.amount": str(placement.gpus_per_container),
            "spark.executor.resource.gpu.discoveryScript": f"./{DISCOVERY.name}",
            "spark.task.resource.gpu.amount": str(placement.gpus_per_worker),
        }
    if placement.isolation == "docker":
        for prefix in ("spark.yarn.appMasterEnv", "spark.executorEnv"):
            conf[f"{prefix}.YARN_CONTAINER_RUNTIME_TYPE"] = "docker"
            conf[f"{prefix}.YARN_CONTAINER_RUNTIME_DOCKER_IMAGE"] = str(placement.image)
    return conf


def files(placement: Placement) -> tuple[str, ...]:
    """What each container needs in its working directory."""
    return (str(DISCOVERY),) if placement.gpus_per_container else ()
