"""The history of a training: the figures of each epoch, and which was the best."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.train import TrainOptions


@dataclass
class History:
    """One entry an epoch: `loss` (training), `validation_loss`, rows/s, and each metric by name."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    best: int = 0
    stopped_early: bool = False


def _is_best(history: History, options: TrainOptions) -> bool:
    """Whether the last epoch is the best so far, by the metric that is monitored."""
    last, best = history.epochs[-1], history.epochs[history.best]
    name = "validation_loss" if options.monitor == "loss" and "validation_loss" in last else options.monitor
    if name not in last:
        raise TrainyardError(
            f"monitor={options.monitor!r} is not among the figures of an epoch: {', '.join(sorted(last))}. "
            "Name one of them, or add it to the recipe's metrics."
        )
    better = last[name] > best[name] if options.monitor_mode == "max" else last[name] < best[name]
    return len(history.epochs) == 1 or better
