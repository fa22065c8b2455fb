"""The progress of a worker group: the phase, epoch and step of each worker, and the speed of the training.

`DIRECTORY/progress/TASK.json` is replaced every few seconds while the group runs.
"""

from __future__ import annotations

import math
from typing import ClassVar, Self

from pydantic import NonNegativeInt, PositiveInt

from trainyard.files import storage, uris
from trainyard.schemas.document import Document, Part
from trainyard.schemas.specs.task_key import TaskKey


class WorkerProgress(Part):
    """The progress of one worker: it has finished `step` global batches of `epoch` (counted from 1)."""

    rank: NonNegativeInt
    host: str
    phase: str
    epoch: int
    step: int


class TrainingProgress(Part):
    """The progress of a training, as rank 0 measures it."""

    epoch: int
    """The current epoch, counted from 1, of `epochs`."""
    epochs: int
    step: int
    """The global batches done in it, of `steps`."""
    steps: int
    loss: float
    """The mean of `metric` in this epoch so far."""
    rows_per_second: float
    """The rows of all workers in a second."""
    seconds_left: float
    """The time until the last epoch ends, at that speed."""
    metric: str = "loss"
    """The first metric that a loop has reported, if it is not a loss."""

    def describe(self) -> str:
        """Return the progress as a line of a log."""
        return (
            f"epoch {self.epoch}/{self.epochs} step {self.step}/{self.steps}: {self.metric} {self.loss:.4g}, "
            f"{self.rows_per_second:,.0f} rows/s, {format_seconds(self.seconds_left)} left"
        )


class ScriptProgress(Part):
    """What rank 0 of a script has reported last."""

    epoch: PositiveInt | None = None
    """The epoch, counted from 1, if it has named one."""
    step: NonNegativeInt | None = None
    """The step, if it has named one."""
    metrics: dict[str, float] = {}
    """The first metrics."""

    def describe(self) -> str:
        """Return the progress as a line of a log."""
        counts = {"epoch": self.epoch, "step": self.step}
        where = " ".join(f"{name} {count}" for name, count in counts.items() if count is not None)
        values = ", ".join(f"{name} {value:.4g}" for name, value in self.metrics.items())
        return ": ".join(filter(None, (where, values))) or "running"


class GroupProgress(Document):
    """The progress of the workers of a task that have sent a heartbeat, at `at` seconds since the epoch."""

    KIND: ClassVar[str] = "progress"

    task_key: TaskKey
    at: float
    workers: tuple[WorkerProgress, ...]
    training: TrainingProgress | ScriptProgress | None = None

    def place(self, uri: str) -> Self:
        """Return the document as one that lies at `uri`; see `TaskKey.place`."""
        return self.model_copy(update={"task_key": self.task_key.place(uri)})

    def save(self) -> None:
        """Store the progress, replacing the previous one."""
        storage.replace(progress_uri(self.task_key), self.to_json().encode())


def format_seconds(seconds: float) -> str:
    """Return a duration with its two largest units: "45 s", "12 min 5 s", "3 h 20 min"."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def read_latest(task_key: TaskKey, started_at: float | None = None) -> GroupProgress | None:
    """Return the progress of this attempt of a task, None if its group has not reported yet.

    Args:
        task_key: The attempt.
        started_at: When the attempt started, in seconds since the epoch. What an earlier attempt has submitted, and
            reports progress since then, is what this attempt waits for.
    """
    uri = progress_uri(task_key)
    progress = GroupProgress.load(uri) if storage.exists(uri) else None
    if progress is None or progress.task_key.try_number == task_key.try_number:
        return progress
    is_reattached = progress.task_key.try_number >= task_key.first_try and progress.at > (started_at or math.inf)
    return progress if is_reattached else None


def progress_uri(task_key: TaskKey) -> str:
    """Return where the progress of a task is stored."""
    return uris.join(task_key.directory, "progress", f"{task_key.task}.json")
