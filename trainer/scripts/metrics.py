"""What becomes of the metrics that a script reports: progress, points of the learning curves, and the result."""

from __future__ import annotations

from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.worker_progress import ScriptProgress
from trainyard.trainer.measuring.phases import CurrentPhase
from trainyard.trainer.scripts.reports import Report

MAX_POINTS = 10_000
"""How many points of learning curves a script may report."""
SHOWN = 5
"""How many metrics the line of the progress has."""


class MetricRecorder:
    """Record the reports of one worker.

    Args:
        events: The events of the worker, whose counter "epoch" has a point for each epoch.
        current: What the worker's heartbeats show.
        is_main: Whether this is rank 0, whose metrics are shown.
    """

    def __init__(self, events: EventLog, current: CurrentPhase, is_main: bool) -> None:
        self._events, self._current, self._is_main = events, current, is_main
        self._epoch: int | None = None
        self._values: dict[str, float] = {}
        self._points = 0

    def record(self, report: Report) -> None:
        """Record a report, which shows that the script makes progress."""
        current = self._current
        current.epoch = current.epoch if report.epoch is None else report.epoch - 1
        current.step = current.step if report.step is None else report.step
        current.report_progress()
        current.is_judged = True
        if not self._is_main or not report.metrics:
            return
        shown = dict(list(report.metrics.items())[:SHOWN])
        current.training = ScriptProgress(epoch=report.epoch, step=report.step, metrics=shown)
        if report.epoch is not None and report.epoch != self._epoch:
            self.end_epoch()
            self._epoch = report.epoch
        if report.epoch is not None:
            self._values |= report.metrics

    def end_epoch(self) -> None:
        """Write the point of an epoch: the last value of each metric that was reported with its number."""
        if self._values and self._points < MAX_POINTS:
            self._events.counter("epoch", **{"epoch": self._epoch, **self._values})  # type: ignore[arg-type]
            self._events.flush_in_background()
            self._points += 1
        self._values = {}
