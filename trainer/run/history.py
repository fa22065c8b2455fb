"""The history of a training: the metrics of each epoch, and which was the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainyard.schemas.heads import name_metric, split_metric
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

    Of equal epochs the one with the lower validation loss is better. Epochs of a checkpoint do not have a metric that
    was added to the recipe later.
    """
    name = get_monitor(history, options)
    last, best = (history.epochs[number].get(name, math.nan) for number in (-1, history.best))
    if math.isnan(last):
        return False
    if len(history.epochs) == 1 or math.isnan(best):
        return True
    if last == best:
        losses = (history.epochs[number].get("validation_loss", math.nan) for number in (-1, history.best))
        return next(losses) < next(losses)
    return last > best if options.monitor_mode == "max" else last < best


def find_best(epochs: Sequence[dict[str, float]], options: TrainOptions) -> int | None:
    """Return the index of the best of some epochs; None if none has the monitored metric."""
    history = History()
    for number, epoch in enumerate(epochs):
        history.epochs.append(epoch)
        if is_best(history, options):
            history.best = number
    return history.best if epochs and get_monitor(history, options) in epochs[history.best] else None


def count_epochs_since_best(history: History, options: TrainOptions) -> int:
    """Return how many epochs with the monitored metric there were since the best one."""
    if not history.epochs:
        return 0
    name = get_monitor(history, options)
    return sum(name in epoch for epoch in history.epochs[history.best + 1 :])


def get_monitor(history: History, options: TrainOptions) -> str:
    """Return the name of the metric that the best epoch is chosen by: of losses that of validation, if there is one."""
    head, name = split_metric(options.monitor)
    of_validation = name_metric(head, "validation_loss")
    has_validation = any(of_validation in epoch for epoch in history.epochs)
    return of_validation if name == "loss" and has_validation else options.monitor
