"""What becomes of the metrics that a script reports: progress, points of the learning curves, and the result."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping

from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.worker_progress import ScriptProgress
from trainyard.trainer.measuring.phases import CurrentPhase
from trainyard.trainer.scripts.reports import Report
from trainyard.trainer.scripts.tracking import BackgroundTracking

FULL_POINTS = 1_000
"""How many values of a metric are all kept: of the next as many every second one, then every third one, and so on."""
FLUSH_SECONDS = 5.0
SHOWN = 5
"""How many metrics the line of the progress has."""


class MetricRecorder:
    """Record the reports of one worker.

    Args:
        events: The events of the worker, whose counters "epoch" and "step" have a point for each of them.
        current: What the worker's heartbeats show.
        is_main: Whether this is rank 0, whose metrics are shown.
        tracking: What gets the points of the curves too.
    """

    def __init__(
        self, events: EventLog, current: CurrentPhase, is_main: bool, tracking: BackgroundTracking | None = None
    ) -> None:
        self._current, self._is_main = current, is_main
        self._epochs, self._steps = Curve(events, "epoch", tracking), Curve(events, "step", tracking)
        self._calls = 0

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
        if report.epoch is not None:
            self._epochs.add(report.epoch, report.metrics)
        else:
            self._calls += 1
            self._steps.add(self._calls if report.step is None else report.step, report.metrics)

    def end(self) -> None:
        """Write the last points."""
        self._epochs.end_point(is_last=True)
        self._steps.end_point(is_last=True)


class Curve:
    """The points of a learning curve: the last value of each metric that was reported with one number.

    Of a long curve some points are left out. A metric that is rarer than others keeps as many as it would alone.

    Args:
        events: Where they are written.
        axis: What the numbers count, which is the name of the counter: "epoch" or "step".
        tracking: What gets them too.
    """

    def __init__(self, events: EventLog, axis: str, tracking: BackgroundTracking | None) -> None:
        self._events, self._axis, self._tracking = events, axis, tracking
        self._place = 0
        self._values: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        self._flushed_at = -math.inf

    def add(self, place: int, metrics: Mapping[str, float]) -> None:
        """Add metrics to the point at a place; the one before ends if it is at another place."""
        if place != self._place:
            self.end_point()
            self._place = place
        self._values |= metrics

    def end_point(self, is_last: bool = False) -> None:
        """Write the point, unless it is one of those that are left out for each of its metrics."""
        if not self._values:
            return
        counts = [self._counts[name] for name in self._values]
        if is_last or any(count % (1 + count // FULL_POINTS) == 0 for count in counts):
            self._events.counter(self._axis, **{self._axis: self._place, **self._values})
            if self._tracking:
                self._tracking.add(self._place, self._values)
        self._counts.update(self._values.keys())
        self._values = {}
        if time.monotonic() > self._flushed_at + FLUSH_SECONDS:
            self._flushed_at = time.monotonic()
            self._events.flush_in_background()
