"""The epochs of a loop: their metrics, which of them is the best, and whether another one follows."""

from __future__ import annotations

import time

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.checkpointing.checkpoints import Position
from trainyard.trainer.run.history import History, count_epochs_since_best, get_monitor, is_best
from trainyard.trainer.run.metrics import EpochMetrics
from trainyard.trainer.world import World

LOSSES = ("loss", "validation_loss")


class Epochs:
    """Count epochs.

    Args:
        options: The options of the loop.
        world: The workers.

    Attributes:
        history: The metrics of the epochs that are done.
        metrics: Those of the current one.

    Raises:
        TrainyardError: `monitor` leaves open what is better.
    """

    def __init__(self, options: TrainOptions, world: World) -> None:
        if options.monitor not in LOSSES and options.monitor_mode is None:
            raise TrainyardError(
                f"monitor={options.monitor!r} does not say whether higher is better; write monitor_mode='min' or 'max'."
            )
        self._options, self._world = options, world
        self.history, self.metrics = History(), EpochMetrics(world)
        self._first_row = self._sent = 0
        self._started_at = time.perf_counter()

    def is_finished(self, epoch: int) -> bool:
        """Return whether no epoch follows after `epoch` epochs."""
        patience = self._options.early_stopping
        stops = bool(patience and count_epochs_since_best(self.history, self._options) >= patience)
        self.history.stopped_early = self.history.stopped_early or stops
        return self.history.stopped_early or epoch >= self._options.epochs

    def begin(self, first_row: int, bytes_sent: int) -> None:
        """Begin an epoch at one of its rows."""
        self._first_row, self._sent, self._started_at = first_row, bytes_sent, time.perf_counter()

    def end(self, rows: int, position: Position, bytes_sent: int) -> bool:
        """Add the metrics of the epoch to the history, and return whether it is the best one so far.

        All workers call this together, and get the same answer.

        Args:
            rows: The rows of an epoch.
            position: The position at its end.
            bytes_sent: The bytes that this worker has sent.

        Raises:
            TrainyardError: `monitor` was not reported.
        """
        speed = (rows - self._first_row) / (time.perf_counter() - self._started_at)
        metrics = self.metrics.merge() | {"rows_per_second": speed}
        if self._world.size > 1:
            metrics["bytes_per_step"] = (bytes_sent - self._sent) / max(position.step, 1)
            metrics = dict(zip(metrics, self._world.broadcast(list(metrics.values())), strict=True))
        history = self.history
        history.epochs.append(metrics)
        name = get_monitor(history, self._options)
        if name not in metrics:
            if self._options.monitor != "loss":
                raise TrainyardError(
                    f"monitor={name!r}, but the loop reported {', '.join(metrics)} in epoch {position.epoch + 1}. "
                    f"Write batch.report({name}=...) or run.report({name}=...) in each epoch, or another monitor=."
                )
            history.best = len(history.epochs) - 1
            return True
        if better := is_best(history, self._options):
            history.best = len(history.epochs) - 1
        return better
