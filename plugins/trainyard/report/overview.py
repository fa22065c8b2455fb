"""The overview of a run: outcome, key metric, time, busy share, bottleneck, and what to try next. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from trainyard.report.curves import humanize
from trainyard.report.formats import format_duration, format_number
from trainyard.report.scores import list_metrics
from trainyard.schemas.evaluation import Interval
from trainyard.schemas.results import EvaluationResult, ModelResult
from trainyard.schemas.runs.phases import computes, is_in_step
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.usage import usage_report
from trainyard.usage.resource_usage import ResourceUsage
from trainyard.usage.usage_report import RunUsage, UsageLine

MAX_SUGGESTIONS = 3
LONG_TAIL = 3
"""After so many epochs without improvement, early stopping is suggested."""
MIN_STEPS_SHARE = 0.3
"""A training that computes for a smaller part of its time would not become faster by faster steps."""


@dataclass(frozen=True)
class Metric:
    """The key metric of a run, and its interval at `confidence`, if there is one."""

    task: str
    name: str
    value: float
    interval: Interval | None = None
    confidence: float | None = None
    model: str = ""

    @property
    def title(self) -> str:
        """The name for readers."""
        return humanize(self.name)

    @property
    def text(self) -> str:
        """The value."""
        return format_number(self.value)

    @property
    def note(self) -> str:
        """The interval as text, and where the metric is from."""
        if not self.interval:
            return f"by {self.task}"
        low, high = map(format_number, self.interval)
        return f"{low} to {high}" + (f" at {100 * self.confidence:g} % confidence" if self.confidence else "")


@dataclass(frozen=True)
class Busy:
    """The share of the allocated time of a resource in which it was busy."""

    resource: Literal["GPU", "core"]
    share: float
    busy: float
    allocated: float


@dataclass(frozen=True)
class Overview:
    """The line at the top of a report."""

    outcome: str
    metric: Metric | None
    seconds: float
    busy: Busy | None
    bottleneck: str
    suggestions: tuple[str, ...]


def build_overview(records: Sequence[RunRecord], usages: Sequence[ResourceUsage] = ()) -> Overview:
    """Return the overview of a run.

    Args:
        records: The newest outcome of each task, in the order of their start.
        usages: The resource usage of the applications that have ended.

    Returns:
        The overview; its fields are empty where nothing is recorded.
    """
    applications = tuple(map(usage_report.convert_usage, usages))
    line = usage_report.sum_runs("", [RunUsage("", "", applications)]) if applications else None
    return Overview(
        outcome=_outcome(records), metric=find_metric(records), seconds=measure_seconds(records),
        busy=compute_busy(line), bottleneck=describe_bottleneck(records),
        suggestions=tuple(_suggest(records))[:MAX_SUGGESTIONS],
    )  # fmt: skip


def find_metric(records: Sequence[RunRecord]) -> Metric | None:
    """Return the key metric: the first one of the last evaluation, else the monitored one of the last training."""
    newest_first = [scored for record in reversed(records) for scored in list_metrics(record)]
    for scored in sorted(newest_first, key=lambda scored: not scored.is_evaluation):
        if not (numbers := {name: value for name, value in scored.metrics.items() if value is not None}):
            continue
        name = next(iter(numbers)) if scored.is_evaluation else _training_metric(numbers)
        return Metric(
            scored.task, name, numbers[name], scored.intervals.get(name), scored.confidence, model=scored.model
        )
    return None


def measure_seconds(records: Sequence[RunRecord]) -> float:
    """Return the seconds from the start of the first stage to the end of the last."""
    if not records:
        return 0.0
    return max(r.started_at + r.seconds for r in records) - min(r.started_at for r in records)


def compute_busy(line: UsageLine | None) -> Busy | None:
    """Return the busy share of GPUs, or of cores where no GPU is allocated; None where nothing is."""
    if line and line.allocated.gpus:
        return Busy("GPU", line.busy.gpus / line.allocated.gpus, line.busy.gpus, line.allocated.gpus)
    if line and line.allocated.cores:
        return Busy("core", line.busy.cores / line.allocated.cores, line.busy.cores, line.allocated.cores)
    return None


def describe_bottleneck(records: Sequence[RunRecord]) -> str:
    """Return a sentence about what takes the most time: the longest stage, or the time between stages."""
    ended = [record for record in records if record.seconds]
    if not ended:
        return ""
    total = measure_seconds(ended)
    longest = max(ended, key=lambda record: record.seconds)
    between = total - _covered_seconds(ended)
    if between > longest.seconds:
        return f"{format_duration(between)} of {format_duration(total)} pass between the stages, while none runs."
    statement = longest.result.limited_by if isinstance(longest.result, ModelResult) else ""
    if len(ended) == 1:
        return f"{statement}." if statement else ""
    duration = f"{format_duration(longest.seconds)} of {format_duration(total)}"
    sentence = f"{longest.task_key.task} is the longest stage: {duration}"
    if not statement or not computes_mostly(longest):
        return f"{sentence}."
    return f"{sentence}. {statement}."


def computes_mostly(record: RunRecord) -> bool:
    """Return whether the steps of a training take a relevant part of its time; True where phases are not recorded."""
    phases = record.result.seconds if isinstance(record.result, ModelResult) else {}
    computed = sum(seconds for name, seconds in phases.items() if computes(name) or is_in_step(name))
    return not phases or computed >= MIN_STEPS_SHARE * record.seconds


def _suggest(records: Sequence[RunRecord]) -> Iterator[str]:
    """Yield what to try next, the most important first: only what the records support."""
    for record in records:
        if record.status == "failed":
            yield f"Fix the cause of the failure of {record.task_key.task}, and clear the task."
    for record in records:
        if record.result and record.result.warnings:
            yield f"Read the warnings of {record.task_key.task}."
    for record in records:
        if isinstance(record.result, ModelResult):
            yield from _suggest_epochs(record.task_key.task, record.result)
    for record in records:
        for evaluation in record.result.evaluations_by_name.values() if record.result else ():
            yield from _suggest_rows(evaluation)
    for record in records:
        if isinstance(record.result, ModelResult) and record.result.advice and computes_mostly(record):
            yield f"To make {record.task_key.task} faster: {record.result.advice}."


def _suggest_epochs(task: str, result: ModelResult) -> Iterator[str]:
    epochs, best = result.epochs, result.best_epoch
    if result.stopped_early:
        return
    if best == epochs > 1:
        yield f"The last epoch of {task} was the best one: more epochs may improve the model."
    elif epochs - best > LONG_TAIL:
        yield (
            f"Epoch {best} of {epochs} was the best one of {task}: "
            f"early_stopping={LONG_TAIL} would have ended it after epoch {best + LONG_TAIL} at the latest."
        )


def _suggest_rows(result: EvaluationResult) -> Iterator[str]:
    """Suggest more rows where the interval of the difference to a baseline contains zero."""
    name = next(iter(result.metrics), "")
    for baseline in result.baselines:
        interval = baseline.differences[name].interval if name in baseline.differences else None
        other = baseline.uri.rpartition("/")[2]
        if baseline.weights_sha256 == result.weights_sha256:
            yield f"The outputs are identical to those of {other}, which has the same weights: choose another baseline."
        elif interval and interval[0] == interval[1] == 0:
            yield (
                f"The {humanize(name)} is that of {other} in each part of the rows: evaluate more rows, or compare the "
                "two models by another metric."
            )
        elif interval and interval[0] <= 0 <= interval[1]:
            low, high = map(format_number, interval)
            yield (
                f"The {humanize(name)} differs from that of {other} by {low} to {high}: "
                "evaluate more rows to tell the two models apart."
            )


def _outcome(records: Sequence[RunRecord]) -> str:
    if not records:
        return "no stage has ended"
    return "failed" if any(record.status == "failed" for record in records) else "succeeded"


def _training_metric(numbers: Mapping[str, float]) -> str:
    speeds = ("rows_per_second", "bytes_per_step", "loss", "validation_loss")
    names = [name for name in numbers if name not in speeds]
    return (names or [name for name in ("validation_loss", "loss") if name in numbers] or list(numbers))[0]


def _covered_seconds(records: Sequence[RunRecord]) -> float:
    """Return the seconds in which at least one stage runs."""
    total, until = 0.0, 0.0
    for record in sorted(records, key=lambda record: record.started_at):
        end = record.started_at + record.seconds
        total += max(0.0, end - max(record.started_at, until))
        until = max(until, end)
    return total
