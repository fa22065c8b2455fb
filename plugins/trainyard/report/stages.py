"""The stages of a run: their order, waits and main figures. Pure functions of the records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.report.formats import format_duration, format_number
from trainyard.schemas.run_record import RunRecord

EXPORTS = ("export", "featurize")


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
        if self.record.output.get("reused"):
            return "reused"
        return format_duration(self.record.seconds) if self.record.seconds else ""

    @property
    def error(self) -> str:
        """The first line of the error; "" after success."""
        return (self.record.error or "").partition("\n")[0]

    @property
    def headline(self) -> str:
        """The main figures, or the error."""
        return self.error or _describe_output(self.record)

    @property
    def warnings(self) -> Sequence[str]:
        """The warnings of the job."""
        return tuple(self.record.output.get("warnings", ()))


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


def _describe_output(record: RunRecord) -> str:
    output = record.output
    if record.status == "failed":
        return ""
    if record.job in EXPORTS and "record_batches" in output:
        return f"{output['rows']:,} rows in {output['record_batches']:,} record batches of {output['shards']:,} shards"
    if "rows" in output and record.job != "evaluate":
        return f"{output['rows']:,} rows"
    if record.job == "script":
        return f"{output.get('workers', '?')} workers"
    metrics = {k: v for k, v in output.get("metrics", {}).items() if isinstance(v, float)}
    speeds = ("rows_per_second", "bytes_per_step")
    text = ", ".join(f"{k.replace('_', ' ')} {format_number(v)}" for k, v in metrics.items() if k not in speeds)
    if record.job == "train" and "epochs" in output:
        best = f", best in epoch {output['best_epoch']}" if output.get("best_epoch") else ""
        return f"{output['epochs']} epochs on {output['workers']} workers{best}: {text}"
    return text
