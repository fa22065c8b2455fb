"""The metrics of tasks: of a training, and of each model of an evaluation. Pure functions of the records."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trainyard.schemas.evaluation import Interval
from trainyard.schemas.heads import split_metric
from trainyard.schemas.results import ModelResult, Numbers
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs import metrics


@dataclass(frozen=True)
class TaskMetrics:
    """The metrics of a task.

    Attributes:
        task: The task.
        model: The name of the model, of an evaluation of several; else "".
        metrics: The metrics.
        intervals: Their intervals, of an evaluation.
        confidence: The confidence of the intervals; None for a training.
    """

    task: str
    model: str
    metrics: Numbers
    intervals: Mapping[str, Interval] = field(default_factory=dict)
    confidence: float | None = None

    @property
    def title(self) -> str:
        """The task, with the model if it is one of several."""
        return f"{self.task} {self.model}".rstrip()

    @property
    def is_evaluation(self) -> bool:
        """Whether an evaluation has computed them."""
        return self.confidence is not None


def list_metrics(record: RunRecord) -> Iterator[TaskMetrics]:
    """Yield the metrics of a task, by model; none of one that computes none."""
    task, result = record.task_key.task, record.result
    if isinstance(result, ModelResult):
        yield TaskMetrics(task, "", result.metrics)
    for model, one in result.evaluations_by_name.items() if result else ():
        yield TaskMetrics(task, model, one.metrics, one.intervals, one.confidence)


def find_direction(name: str) -> int:
    """Return 1 if more of a metric is better, -1 if less is, 0 if that is not known."""
    plain = split_metric(name.rpartition(" ")[2])[1].removeprefix("validation_")
    return -1 if plain == "loss" else metrics.sign(plain) if metrics.is_known(plain) else 0
