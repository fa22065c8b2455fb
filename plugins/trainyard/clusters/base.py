"""The interface of a cluster: settings, checks, submission, state and applications.

`trainyard.clusters.registry` finds the cluster of a Spark connection. Nothing else compares the names of clusters.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol

from trainyard.errors import TrainyardError
from trainyard.planning.target import Target

if TYPE_CHECKING:
    from airflow.triggers.base import BaseTrigger

    from trainyard.backends.base import Backend, DeferredBackend, Waiting
    from trainyard.planning.finding import Finding
    from trainyard.planning.plan import Plan
    from trainyard.planning.sizing import Memory
    from trainyard.schemas.specs.task_key import TaskKey
    from trainyard.text import Log

NamedCheck = tuple[str, Callable[[], str]]
"""The subject of a check, and the function that returns its result, or raises TrainyardError with what to change."""


class FailedCheckError(TrainyardError):
    """What a check found is not usable; `result` describes it, and the message says what to change."""

    def __init__(self, result: str, fix: str) -> None:
        super().__init__(fix)
        self.result = result


class Needs(Protocol):
    """What one kind of job needs on the nodes: modules of Python, and memory."""

    @property
    def modules(self) -> tuple[str, ...]:
        """What the job's Python imports, beside Spark and the user's code."""

    @property
    def memory(self) -> Memory:
        """The default memory of an executor."""


class RunningApplication(Protocol):
    """An application that has not ended."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def state(self) -> str:
        """Its state, in the cluster's words."""

    @property
    def queue(self) -> str:
        """Its queue."""

    @property
    def tags(self) -> frozenset[str]:
        """The tags that it was submitted with."""


class Applications(Protocol):
    """The applications of a cluster, which run on when the processes of their tasks have ended."""

    def list_live(self, tag: str) -> Sequence[RunningApplication]:
        """Return the applications with a tag that have not ended, oldest first."""

    def kill(self, id: str) -> None:
        """Kill an application; do nothing for one that has ended."""


class Cluster(Target):
    """The cluster of one Spark connection, and what callers ask about it.

    An implementation has the decisions of `trainyard.planning.target.Target`, which are pure, and those below, which
    may send requests. The answers here are those of a cluster whose drivers are children of their tasks.

    Attributes:
        NAME: The name of this kind, for messages: "on NAME".
        MASTER: The masters of this kind, as a regular expression.
        outlives_tasks: Whether an application runs on when the processes of its task have ended. A later attempt then
            reattaches to it.
    """

    NAME: ClassVar[str]
    MASTER: ClassVar[str]
    outlives_tasks: ClassVar[bool] = False

    @abstractmethod
    def create_backend(self, plan: Plan, waiting: Waiting) -> Backend:
        """Return the backend that runs the application of a plan.

        Args:
            plan: The plan.
            waiting: How the task waits for an application that outlives it.
        """

    def resume_backend(
        self, operator: str, task_key: TaskKey, root: str, make_plan: Callable[[], Plan], waiting: Waiting
    ) -> DeferredBackend:
        """Return the backend that a deferred task resumes with, or whose applications are killed.

        Args:
            operator: The operator, for error messages.
            task_key: The task.
            root: The storage root, a URI.
            make_plan: Returns the plan; called only to submit again, or to explain a failure.
            waiting: How the task waits for an application.

        Raises:
            TrainyardError: Applications do not outlive their tasks here, so that none is waited for.
        """
        raise TrainyardError(
            f"{operator}: connection {self.spark.conn_id!r} names {self.NAME}, where no application runs on without "
            "its task. Write the master that the application was submitted to."
        )

    def find_user(self) -> str | None:
        """Return the user that Python on the nodes accesses HDFS as; None where something else decides it."""
        return None

    def list_applications(self) -> Applications | None:
        """Return the applications, None where they do not outlive their tasks."""
        return None

    def list_checks(self, conn_id: str, of_stage: Needs, of_training: Needs) -> Iterable[NamedCheck]:
        """Return the checks of `trainyard doctor`, beside those of this machine.

        Args:
            conn_id: The connection of type `trainyard`, with the storage.
            of_stage: What a Spark stage needs on the nodes.
            of_training: What a training needs there.
        """
        return ()

    def check_plans(self, plans: Sequence[Plan], writes: Mapping[str, Sequence[str]]) -> Iterable[Finding]:
        """Return what preflight finds about the plans of a DAG.

        Args:
            plans: The plans.
            writes: The directories that each stage writes to.
        """
        return ()

    def wait_for_room(self, plan: Plan, poll: float, log: Log) -> BaseTrigger | None:
        """Return a trigger that waits for room for a plan, None if there is room, or it cannot be known.

        Args:
            plan: The plan.
            poll: The seconds between two polls.
            log: Gets why there is no room.

        Raises:
            UnavailableError: The cluster does not answer.
            TrainyardError: The plan does not fit even when the cluster is idle.
        """
        return None
