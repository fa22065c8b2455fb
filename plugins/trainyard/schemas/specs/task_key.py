"""The identity of an Airflow task."""

from __future__ import annotations

from pydantic import PositiveInt

from trainyard.schemas.document import Part


class TaskKey(Part):
    """Where in Airflow a job belongs, and the directory that its run writes to.

    `first_try` is the first of its tries since the task was last cleared, which makes a result anew.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: PositiveInt = 1
    first_try: PositiveInt = 1
    directory: str

    @property
    def task(self) -> str:
        """The task's name within the run; mapped tasks have their index in it."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}.{self.map_index}"
