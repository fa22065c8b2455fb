"""The epochs of a loop: their metrics, which of them is the best, and whether another one follows."""

from __future__ import annotations

import time

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.checkpointing.checkpoints import Position
from trainyard.trainer.data.order import Order
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
        self._first_step = self._sent = 0
        self._started_at = time.perf_counter()

    def is_finished(self, epoch: int) -> bool:
        """Return whether no epoch follows after `epoch` epochs."""
        patience = self._options.early_stopping
        stops = bool(patience and count_epochs_since_best(self.history, self._options) >= patience)
        self.history.stopped_early = self.history.stopped_early or stops
        return self.history.stopped_early or epoch >= self._options.epochs

    def begin(self, step: int, bytes_sent: int) -> None:
        """Begin an epoch at one of its steps."""
        self._first_step, self._sent, self._started_at = step, bytes_sent, time.perf_counter()

    def end(self, order: Order, position: Position, bytes_sent: int) -> bool:
        """Add the metrics of the epoch to the history, and return whether it is the best one so far.

        An epoch that the loop has left early is the best one only if there is no other. All workers call this together,
        and get the same answer.

        Args:
            order: The order of the rows of an epoch.
            position: The position after its last step.
            bytes_sent: The bytes that this worker has sent.

        Raises:
            TrainyardError: The metric that options need was not reported.
        """
        rows = min(position.step * order.batch, order.rows) - self._first_step * order.batch
        metrics = self.metrics.merge() | {"rows_per_second": rows / (time.perf_counter() - self._started_at)}
        if self._world.size > 1:
            steps = max(position.step - self._first_step, 1)
            metrics["bytes_per_step"] = (bytes_sent - self._sent) / steps
            metrics = dict(zip(metrics, self._world.broadcast(list(metrics.values())), strict=True))
        history = self.history
        history.epochs.append(metrics)
        is_left = position.step < order.steps
        if not is_left:
            self._check_monitor(position.epoch)
        if is_left or not self._is_monitored():
            better = not is_left or len(history.epochs) == 1
        else:
            better = is_best(history, self._options)
        if better:
            history.best = len(history.epochs) - 1
        return better

    def _is_monitored(self) -> bool:
        """Return whether an epoch has the monitored metric."""
        name = get_monitor(self.history, self._options)
        return any(name in epoch for epoch in self.history.epochs)

    def _check_monitor(self, epoch: int) -> None:
        """Check that the monitored metric was reported, if an option needs it. Raises TrainyardError if it was not."""
        options = self._options
        if self._is_monitored() or (options.monitor == "loss" and not options.early_stopping):
            return
        name, reported = options.monitor, ", ".join(self.history.epochs[-1])
        if name != "loss":
            raise TrainyardError(
                f"monitor={name!r}, but the loop reported {reported} in epoch {epoch + 1}. Write "
                f"batch.report({name}=...) or run.report({name}=...) from the first epoch on, or another monitor=."
            )
        raise TrainyardError(
            f"early_stopping={options.early_stopping}, but the loop reported neither loss nor validation_loss in epoch "
            f"{epoch + 1}: it reported {reported}. Write batch.report(loss=...), or name another metric in monitor=."
        )
