"""Report the progress of a training: lines of its log, counters of its events, and trackers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from trainyard.schemas.runs.phases import find_activity
from trainyard.schemas.runs.worker_progress import TrainingProgress, format_seconds
from trainyard.trainer.data.order import Order
from trainyard.trainer.measuring.phases import Phases
from trainyard.trainer.measuring.tracking import Tracker, send

INTERVAL_SECONDS = 5.0
MIN_SECONDS = 1e-6
SPEED_METRICS = ("rows_per_second", "bytes_per_step")


class Progress:
    """Report steps and epochs; rank 0 prints them and passes them on to trackers.

    Args:
        epochs: The number of epochs of the training.
        order: The order of the training split.
        is_main: Whether this is rank 0.
        phases: The phases of this worker.
        trackers: The trackers of the run.
    """

    def __init__(self, epochs: int, order: Order, is_main: bool, phases: Phases, trackers: Sequence[Tracker]) -> None:
        self._epochs, self._order, self._is_main, self._phases = epochs, order, is_main, phases
        self._trackers = list(trackers)
        self._printed_at = 0.0

    def begin_epoch(self, epoch: int, step: int) -> None:
        """Begin an epoch at a step; both are counted from 0."""
        self._epoch, self._first_step = epoch, step
        self._started_at = self._printed_at = time.monotonic()

    def end_step(self, steps: int, loss: float, metric: str = "loss") -> None:
        """Report the progress of the training, and print it every few seconds.

        Args:
            steps: The global batches of the epoch that are done.
            loss: The mean loss of the epoch so far, or another metric that a loop of one's own has reported.
            metric: Its name.
        """
        if not self._is_main:
            return
        now, order = time.monotonic(), self._order
        rows = min(steps * order.batch, order.rows)
        speed = (rows - self._first_step * order.batch) / max(now - self._started_at, MIN_SECONDS)
        progress = TrainingProgress(
            epoch=self._epoch + 1, epochs=self._epochs, step=steps, steps=order.steps, loss=loss, rows_per_second=speed,
            seconds_left=(order.rows * (self._epochs - self._epoch) - rows) / speed, metric=metric,
        )  # fmt: skip
        self._phases.current.training = progress
        if now - self._printed_at >= INTERVAL_SECONDS:
            self._printed_at = now
            print(progress.describe(), flush=True)

    def end_epoch(self, metrics: Mapping[str, float]) -> None:
        """Report the metrics of an epoch."""
        number = self._epoch + 1
        if self._is_main:
            self._phases.log_event(lambda log: log.counter("epoch", epoch=number, **metrics))
        seconds = self._phases.end_epoch()
        if not self._is_main:
            return
        epoch_seconds = sum(value for name, value in seconds.items() if find_activity(name) != "start")
        remaining = (self._epochs - number) * epoch_seconds
        values = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items() if name not in SPEED_METRICS)
        print(
            f"epoch {number}/{self._epochs}: {values}, {metrics['rows_per_second']:,.0f} rows/s, "
            f"{format_seconds(remaining)} left",
            flush=True,
        )
        send(self._trackers, [(number, metrics)])
