"""Which epoch is the best, by the monitored metric."""

from __future__ import annotations

import pytest

from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.loop.history import History, is_best


def find_best(epochs: list[dict[str, float]], **options: object) -> int:
    """Return the best epoch, as a training finds it epoch after epoch."""
    history = History()
    for number, metrics in enumerate(epochs):
        history.epochs.append(metrics)
        if is_best(history, TrainOptions(**options)):  # type: ignore[arg-type]
            history.best = number
    return history.best


ACCURACIES = [{"loss": 1.0, "accuracy": value} for value in (0.6, 0.8, 0.5, 0.7)]


@pytest.mark.parametrize(("mode", "best"), [("max", 1), ("min", 2)])
def test_the_best_epoch_has_the_maximum_or_minimum_of_the_monitored_metric(mode: str, best: int) -> None:
    assert find_best(ACCURACIES, monitor="accuracy", monitor_mode=mode) == best


@pytest.mark.parametrize("mode", ["max", "min"])
def test_of_equal_epochs_the_first_is_the_best(mode: str) -> None:
    assert find_best([{"loss": 1.0}, {"loss": 1.0}], monitor_mode=mode) == 0


def test_the_loss_is_that_of_validation_where_there_is_one() -> None:
    epochs = [{"loss": 3.0, "validation_loss": 1.0}, {"loss": 2.0, "validation_loss": 2.0}]
    assert find_best(epochs) == 0
    assert find_best([{"loss": epoch["loss"]} for epoch in epochs]) == 1


def test_epochs_before_a_metric_was_added_to_the_recipe_are_never_the_best() -> None:
    assert find_best([{"loss": 0.1}, *ACCURACIES], monitor="accuracy", monitor_mode="min") == 3
