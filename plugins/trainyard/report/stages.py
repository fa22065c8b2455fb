"""The stages of a run: their order, waits and main figures. Pure functions of the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.files import uris
from trainyard.report.curves import SPEEDS
from trainyard.report.formats import format_duration, format_number
from trainyard.schemas.results import (
    DatasetResult,
    EnsembleResult,
    EvaluationResult,
    EvaluationsResult,
    ModelResult,
    Numbers,
    PredictionsResult,
    PromotionResult,
    ScriptResult,
)
from trainyard.schemas.runs.run_record import RunRecord


@dataclass(frozen=True)
class Stage:
    """The end of a task.

    Attributes:
        record: What it left.
        waited: The seconds since the end of all earlier stages; None for the first.
        share: Its part of the time of the longest stage, from 0 to 1.
    """

    record: RunRecord
    waited: float | None
    share: float

    @property
    def duration(self) -> str:
        """The duration as text."""
        if isinstance(self.record.result, DatasetResult) and self.record.result.reused:
            return "reused"
        return format_duration(self.record.seconds) if self.record.seconds else ""

    @property
    def error(self) -> str:
        """The first line of the error; "" after success."""
        return (self.record.error or "").partition("\n")[0]

    @property
    def headline(self) -> str:
        """The main figures, or the error."""
        return self.error or describe_result(self.record)

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings of the job."""
        return self.record.result.warnings if self.record.result else ()


def build_stages(records: Sequence[RunRecord]) -> list[Stage]:
    """Return the records, in the order of their start, with the wait of each since the end of all earlier ones."""
    longest = max((record.seconds for record in records), default=0.0) or 1.0
    stages: list[Stage] = []
    ended: float | None = None
    for record in records:
        waited = None if ended is None else max(0.0, record.started_at - ended)
        stages.append(Stage(record, waited, record.seconds / longest))
        ended = max(ended or 0.0, record.started_at + record.seconds)
    return stages


def describe_result(record: RunRecord) -> str:
    """Return the main figures of what a task returned."""
    match record.result:
        case DatasetResult(rows=rows, record_batches=record_batches, shards=shards):
            return f"{rows:,} rows in {record_batches:,} record batches of {shards:,} shards"
        case PredictionsResult(rows=rows):
            return f"{rows:,} rows"
        case ScriptResult(workers=workers, metrics=metrics):
            return ": ".join(filter(None, (f"{workers} workers", _describe_metrics(metrics))))
        case EvaluationResult(metrics=metrics):
            return _describe_metrics(metrics)
        case PromotionResult() as result:
            return _describe_promotion(record.task_key.root, result)
        case EnsembleResult(by=by, members=members):
            return f"{by} of {', '.join(uris.shorten(record.task_key.root, member) for member in members)}"
        case EvaluationsResult(evaluations=evaluations):
            return "; ".join(f"{name}: {_describe_metrics(one.metrics)}" for name, one in evaluations.items())
        case ModelResult(epochs=epochs, workers=workers, best_epoch=best, metrics=metrics):
            return f"{epochs} epochs on {workers} workers, best in epoch {best}: {_describe_metrics(metrics)}"
    return ""


def _describe_promotion(root: str, result: PromotionResult) -> str:
    candidate, champion = (uris.shorten(root, uri) for uri in (result.candidate, result.uri))
    if not result.promoted:
        stays = f", which stays {result.weights_sha256[:16]}" if result.weights_sha256 else ""
        return f"{candidate} is not promoted to {champion}{stays}: {result.why}"
    replaced = f" in place of {result.replaced[:16]}" if result.replaced else ""
    return f"{candidate} is promoted to {champion}{replaced}: {result.why}"


def _describe_metrics(metrics: Numbers) -> str:
    numbers = {name: value for name, value in metrics.items() if isinstance(value, float) and name not in SPEEDS}
    return ", ".join(f"{name.replace('_', ' ')} {format_number(value)}" for name, value in numbers.items())
