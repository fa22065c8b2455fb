"""What the marks of a job say: when its steps were, and how good its model is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WORKERS = 2


@dataclass(frozen=True)
class Step:
    """An optimizer step of a worker.

    Attributes:
        rank: The worker's number.
        pid: Its process.
        at: When the step ended, in seconds since the epoch.
    """

    rank: int
    pid: int
    at: float


@dataclass(frozen=True)
class Marks:
    """The marks of a run.

    Attributes:
        steps: The steps of all workers, in the order in which they ended.
        accuracy: The accuracy on the held-out rows, None until it is reported.
    """

    steps: tuple[Step, ...] = ()
    accuracy: float | None = None

    @property
    def groups(self) -> list[tuple[float, float]]:
        """When each process that has been rank 0 took its first and its last step."""
        times: dict[int, list[float]] = {}
        for step in self.of_rank(0):
            times.setdefault(step.pid, []).append(step.at)
        return [(group[0], group[-1]) for group in times.values()]

    def of_rank(self, rank: int) -> list[Step]:
        """Return the steps of a worker."""
        return [step for step in self.steps if step.rank == rank]


def parse(text: str) -> Marks:
    """Return the marks of a file's complete lines."""
    steps, accuracy = [], None
    for line in text[: text.rfind("\n") + 1].splitlines():
        name, *values = line.split()
        if name == "accuracy":
            accuracy = float(values[0])
        else:
            steps.append(Step(int(values[0]), int(values[1]), float(values[2])))
    return Marks(tuple(sorted(steps, key=lambda step: step.at)), accuracy)


def compute_rate(steps: Sequence[Step], rows: int, steps_per_epoch: int) -> float | None:
    """Return the rows/s of the last epoch, with what lies between two epochs; None without two epochs.

    Args:
        steps: The steps of one worker.
        rows: The rows of an epoch, over all workers.
        steps_per_epoch: The steps that each worker takes in an epoch.
    """
    if len(steps) < 2 * steps_per_epoch:
        return None
    return rows / (steps[-1].at - steps[-1 - steps_per_epoch].at)


def find_next_step(marks: Marks, rank: int, killed_pid: int, killed_at: float) -> Step | None:
    """Return the first step of the process that replaces a worker, None if there is none."""
    later = (step for step in marks.of_rank(rank) if step.at > killed_at and step.pid != killed_pid)
    return next(later, None)


def count_at_once(groups: Sequence[tuple[float, float]]) -> int:
    """Return how many of the groups, each with its first and last time, trained at the same time at most."""
    return max((sum(first <= begin <= last for first, last in groups) for begin, _ in groups), default=0)
