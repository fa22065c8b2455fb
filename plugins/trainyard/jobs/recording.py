"""Record the outcome of a task that runs no application, such as a promotion, so that it is a line of its run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from trainyard.jobs.task_instance import task_key_of
from trainyard.schemas.results import Result
from trainyard.schemas.runs.run_record import RunRecord

if TYPE_CHECKING:
    from airflow.sdk import Context


class TaskRecorder:
    """What becomes the run record of one attempt of a task.

    Args:
        context: The context of the task.
        root: The storage root.
        job: The kind of task, a key of `WITHOUT_JOB`.
    """

    def __init__(self, context: Context, root: str, job: str) -> None:
        self._task_key, self._job = task_key_of(context["ti"], root), job
        self._started_at, self._clock = time.time(), time.perf_counter()

    def save(self, result: Result | None, error: str | None = None) -> None:
        """Store the record of a success, or of a failure with its error."""
        RunRecord(
            task_key=self._task_key, job=self._job, application="", started_at=self._started_at,
            seconds=time.perf_counter() - self._clock, status="failed" if error else "succeeded", output=result,
            error=error,
        ).save()  # fmt: skip
