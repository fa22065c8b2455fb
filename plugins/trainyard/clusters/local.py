"""A local master: driver and executors are one process of this machine, and its children."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from trainyard.clusters.base import Cluster
from trainyard.errors import TrainyardError
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime

if TYPE_CHECKING:
    from trainyard.backends.base import Backend, Waiting
    from trainyard.planning.plan import Plan

CONF = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
ENV = {"SPARK_LOCAL_IP": "127.0.0.1"}
PYTHONPATH = "spark.executorEnv.PYTHONPATH"


class LocalCluster(Cluster):
    """This machine as a cluster."""

    NAME = "a local master"
    MASTER = r"local(\[(\d+|\*)(,\s*\d+)?\])?|local-cluster\[\d+,\s*\d+,\s*\d+\]"

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        return count_slots(self.spark.master)

    def check(self, job: Job) -> None:
        """Check that the workers of a job can run at once. Raises TrainyardError if they cannot."""
        min_workers, slots = job.min_workers or job.workers, self.slots
        if min_workers and min_workers > slots:
            raise TrainyardError(
                f"{job.operator}: {min_workers} workers must run at once, and master {self.spark.master} has "
                f"{slots} slot{'s' * (slots != 1)}. Write local[{min_workers}] as the host of connection "
                f"{self.spark.conn_id!r}, or workers={slots}."
            )

    def list_settings(self, job: Job, requested: Executors, runtime: Runtime) -> dict[str, str]:
        """Return the settings of a Spark that is not reached from other machines."""
        return dict(CONF)

    def list_final_settings(
        self, job: Job, conf: Mapping[str, str], tags: Iterable[str], runtime: Runtime
    ) -> dict[str, str]:
        """Return the path of the code archive for the daemon, which starts before Spark adds it to the path."""
        if not self.choose_daemon(job):
            return {}
        return {PYTHONPATH: os.pathsep.join([*runtime.py_files, *filter(None, [conf.get(PYTHONPATH)])])}

    def choose_daemon(self, job: Job) -> str | None:
        """Return the job's daemon; none on macOS, where a process that has imported torch cannot be forked safely."""
        return job.daemon if sys.platform == "linux" else None

    def list_variables(self, job: Job) -> dict[str, str]:
        """Return the environment variables of the driver, and so of all processes."""
        return ENV | dict(job.env_vars)

    def create_backend(self, plan: Plan, waiting: Waiting) -> Backend:
        """Return the backend that runs the application as a child of this process."""
        from trainyard.backends.local import LocalBackend

        return LocalBackend(plan)


def count_slots(master: str) -> int:
    """Return how many tasks run at once on a local master."""
    numbers = re.findall(r"\d+|\*", master)
    if not numbers:
        return 1
    if master.startswith("local-cluster"):
        return int(numbers[0]) * int(numbers[1])
    return os.cpu_count() or 1 if numbers[0] == "*" else int(numbers[0])
