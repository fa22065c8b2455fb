"""The history of a training: the metrics of each epoch, and which was the best."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from trainyard.schemas.specs.train import TrainOptions


@dataclass
class History:
    """The metrics of each epoch.

    Attributes:
        epochs: For each epoch `loss` (training), `validation_loss`, `rows_per_second`, and the recipe's metrics.
        best: The index of the best epoch.
        stopped_early: Whether early stopping ended the training.
        models: The `uri` and `weights_sha256` of the model of each epoch, if it is kept.
    """

    epochs: list[dict[str, float]] = field(default_factory=list)
    best: int = 0
    stopped_early: bool = False
    models: list[dict[str, str]] = field(default_factory=list)


def is_best(history: History, options: TrainOptions) -> bool:
    """Return whether the last epoch is the best so far, by the monitored metric; one where it is NaN never is.

    Epochs of a checkpoint do not have a metric that was added to the recipe later.
    """
    name = get_monitor(history, options)
    last, best = (history.epochs[number].get(name, math.nan) for number in (-1, history.best))
    if math.isnan(last):
        return False
    better = last > best if options.monitor_mode == "max" else last < best
    return better or len(history.epochs) == 1 or math.isnan(best)


def get_monitor(history: History, options: TrainOptions) -> str:
    """Return the name of the metric that the best epoch is chosen by."""
    return (
        "validation_loss" if options.monitor == "loss" and "validation_loss" in history.epochs[-1] else options.monitor
    )
