"""Progress: what a run tells while it goes on. Lines of its log, counters of its events, trackers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from trainyard.trainer.data.order import Order
from trainyard.trainer.loop.phases import Phases
from trainyard.trainer.loop.tracking import Tracker

SECONDS = 5.0
SPEED = ("rows_per_second", "bytes_per_step")
BEFORE_EPOCHS = ("set up", "find checkpoint")


class Progress:
    """Told of steps and epochs by every rank's loop; rank 0 alone, which `leads`, tells others."""

    def __init__(self, epochs: int, order: Order, leads: bool, phases: Phases, trackers: Sequence[Tracker]) -> None:
        self._epochs, self._order, self._leads, self._phases = epochs, order, leads, phases
        self._trackers = list(trackers)
        self._told = 0.0

    def begin_epoch(self, epoch: int, step: int) -> None:
        """Epoch and step are counted from 0."""
        self._epoch, self._first = epoch, step
        self._began = self._told = time.monotonic()

    def step(self, done: int) -> None:
        """Global batches up to `done` of the epoch are behind us."""
        now = time.monotonic()
        if not self._leads or now - self._told < SECONDS:
            return
        self._told, order, seconds = now, self._order, now - self._began
        rows = min(done * order.batch, order.rows)
        speed = (rows - self._first * order.batch) / seconds
        left = (order.rows * (self._epochs - self._epoch) - rows) / speed
        print(
            f"epoch {self._epoch + 1}/{self._epochs} step {done}/{order.steps}: "
            f"{speed:,.0f} rows/s, {left:,.0f} s left",
            flush=True,
        )

    def end_epoch(self, figures: Mapping[str, float]) -> None:
        number = self._epoch + 1
        if self._leads:
            self._phases.note(lambda log: log.counter("epoch", epoch=number, **figures))
        seconds = self._phases.end_epoch()
        if not self._leads:
            return
        left = (self._epochs - number) * sum(v for name, v in seconds.items() if name not in BEFORE_EPOCHS)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items() if name not in SPEED)
        print(
            f"epoch {number}/{self._epochs}: {shown}, {figures['rows_per_second']:,.0f} rows/s, {left:,.0f} s left",
            flush=True,
        )
        for tracker in list(self._trackers):
            try:
                tracker.epoch(number, figures)
            except Exception as error:  # training goes on without being followed
                self._trackers.remove(tracker)
                print(f"{type(tracker).__name__} takes no more figures of this run: {error}", flush=True)
