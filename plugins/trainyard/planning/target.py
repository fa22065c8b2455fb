"""What a plan depends on where it is submitted: pure decisions. `trainyard.clusters` has the kinds of clusters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping

from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime, SparkConnection


class Target(ABC):
    """Where an application is submitted, as far as its plan depends on it. No method sends a request.

    Args:
        spark: The Spark connection.

    Attributes:
        has_queues: Whether an application has a queue and node labels.
    """

    has_queues = False

    def __init__(self, spark: SparkConnection) -> None:
        self.spark = spark

    @property
    def slots(self) -> int | None:
        """How many tasks run at once, where all processes run on this machine; None for a cluster of other ones."""
        return None

    @abstractmethod
    def check(self, job: Job) -> None:
        """Check whether applications of a job can run here.

        Raises:
            TrainyardError: They never can, or an option of the job does not apply here.
        """

    @abstractmethod
    def list_settings(self, job: Job, requested: Executors, runtime: Runtime) -> dict[str, str]:
        """Return the Spark settings that the user's override.

        Args:
            job: The job.
            requested: Its executors.
            runtime: What this installation provides.
        """

    def list_final_settings(
        self, job: Job, conf: Mapping[str, str], tags: Iterable[str], runtime: Runtime
    ) -> dict[str, str]:
        """Return the Spark settings that depend on the user's.

        Args:
            job: The job.
            conf: The settings so far, with the user's.
            tags: The tags by which the application is found.
            runtime: What this installation provides.
        """
        return {}

    def choose_daemon(self, job: Job) -> str | None:
        """Return the module of the process that Python workers are forked from, None for Spark's own."""
        return None

    def list_files(self, job: Job) -> tuple[str, ...]:
        """Return the files that each executor needs, beside the user's."""
        return ()

    def list_variables(self, job: Job) -> dict[str, str]:
        """Return the environment variables of the driver, where it runs on this machine."""
        return {}
