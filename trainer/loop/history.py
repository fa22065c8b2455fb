"""The history of a training: the metrics of each epoch, and which was the best."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.train import TrainOptions


@dataclass
class History:
    """The metrics of each epoch.

    Attributes:
        epochs: For each epoch `loss` (training), `validation_loss`, `rows_per_second`, and the recipe's metrics.
        best: The index of the best epoch.
        stopped_early: Whether early stopping ended the training.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    best: int = 0
    stopped_early: bool = False


def is_best(history: History, options: TrainOptions) -> bool:
    """Return whether the last epoch is the best so far, by the monitored metric; one where it is NaN never is.

    Raises:
        TrainyardError: The epochs do not have the metric.
    """
    name = get_monitor(history, options)
    last, best = history.epochs[-1], history.epochs[history.best]
    if name not in last:
        raise TrainyardError(
            f"monitor={options.monitor!r} is not a metric of an epoch; the metrics are {', '.join(sorted(last))}. "
            "Write one of them, or add it to the recipe's metrics."
        )
    if math.isnan(last[name]):
        return False
    better = last[name] > best[name] if options.monitor_mode == "max" else last[name] < best[name]
    return better or len(history.epochs) == 1 or math.isnan(best[name])


def get_monitor(history: History, options: TrainOptions) -> str:
    """Return the name of the metric that the best epoch is chosen by."""
    return (
        "validation_loss" if options.monitor == "loss" and "validation_loss" in history.epochs[-1] else options.monitor
    )
