"""YARN as a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from trainyard.clusters.base import Applications, Cluster, NamedCheck, Needs
from trainyard.errors import TrainyardError
from trainyard.planning import placement
from trainyard.planning.executors import Executors
from trainyard.planning.job import Job, Runtime
from trainyard.yarn import settings

if TYPE_CHECKING:
    from trainyard.backends.base import DeferredBackend, Waiting
    from trainyard.planning.finding import Finding
    from trainyard.planning.plan import Plan
    from trainyard.schemas.specs.task_key import TaskKey
    from trainyard.text import Log
    from trainyard.triggers.capacity import CapacityTrigger


class YarnCluster(Cluster):
    """The cluster of HADOOP_CONF_DIR, or of the connection in Airflow's setting `yarn_conn_id`."""

    NAME = "YARN"
    MASTER = "yarn"
    outlives_tasks = True
    has_queues = True

    def check(self, job: Job) -> None:
        """Check the deploy mode of the connection, and the user's Spark configuration."""
        if self.spark.deploy_mode != "cluster":
            raise TrainyardError(
                f"{job.operator}: connection {self.spark.conn_id!r} has deploy-mode "
                f"{self.spark.deploy_mode or 'client'}; on YARN the driver must outlive processes of Airflow. Write "
                '{"deploy-mode": "cluster"} in its extra.'
            )
        settings.check_conf(job)

    def list_settings(self, job: Job, requested: Executors, runtime: Runtime) -> dict[str, str]:
        """Return sizes, placement and environment of the containers."""
        return settings.list_settings(job, requested, runtime)

    def list_final_settings(
        self, job: Job, conf: Mapping[str, str], tags: Iterable[str], runtime: Runtime
    ) -> dict[str, str]:
        """Return authentication, tags, and the packed environment."""
        return settings.list_final_settings(job, conf, tags, runtime)

    def choose_daemon(self, job: Job) -> str | None:
        """Return the daemon of a worker group with enough memory for it."""
        return settings.choose_daemon(job)

    def list_files(self, job: Job) -> tuple[str, ...]:
        """Return the script that finds GPUs, where a container has some."""
        return placement.files(job.placement)

    def create_backend(self, plan: Plan, waiting: Waiting) -> DeferredBackend:
        """Return the backend that submits the plan, or reattaches to the application of an earlier attempt."""
        return self.resume_backend(plan.job.operator, plan.job.task_key, plan.job.storage, lambda: plan, waiting)

    def resume_backend(
        self, operator: str, task_key: TaskKey, root: str, make_plan: Callable[[], Plan], waiting: Waiting
    ) -> DeferredBackend:
        """Return the backend of a task, which finds the task's applications by a tag."""
        from trainyard.backends.yarn import YarnBackend

        return YarnBackend(operator, task_key, root, make_plan, waiting)

    def find_user(self) -> str | None:
        """Return the submitting user; None with Kerberos, where the token of a container decides."""
        from trainyard.yarn import cluster

        return cluster.container_user()

    def list_applications(self) -> Applications:
        """Return the ResourceManager."""
        from trainyard.yarn import cluster

        return cluster.resource_manager()

    def list_checks(self, conn_id: str, of_stage: Needs, of_training: Needs) -> Iterator[NamedCheck]:
        """Return the checks of the ResourceManager, queues and nodes."""
        from trainyard.clusters.yarn import checks

        return checks.list_checks(self.spark, conn_id, of_stage, of_training)

    def check_plans(self, plans: Sequence[Plan], writes: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
        """Check plans against queues and nodes, and in containers."""
        from trainyard.clusters.yarn import preflight

        return preflight.check_plans(plans, writes)

    def wait_for_room(self, plan: Plan, poll: float, log: Log) -> CapacityTrigger | None:
        """Return a trigger that waits for room in the plan's queue; None also with another scheduler."""
        from trainyard.triggers.capacity import CapacityTrigger
        from trainyard.yarn import capacity, cluster, fit
        from trainyard.yarn.snapshot import OtherSchedulerError

        try:
            snapshot = cluster.take_snapshot()
        except OtherSchedulerError as error:
            log(f"{error} The stage is not held back.")
            return None
        plan = fit.fit_to_cluster(plan, snapshot, log)
        queue = snapshot.queue_of(plan.queue)
        request = capacity.resource_request(plan, queue, *capacity.containers(plan, snapshot, queue))
        if shortfall := capacity.shortfall(request, snapshot, queue):
            log(shortfall)
            return CapacityTrigger(plan.queue, asdict(request), poll)
        return None
