"""Which epoch is the best, by the monitored metric."""

from __future__ import annotations

import pytest

from trainyard.schemas.specs.train import TrainOptions
from trainyard.trainer.run import history
from trainyard.trainer.run.history import History, count_epochs_since_best


def find_best(epochs: list[dict[str, float]], **options: object) -> int | None:
    return history.find_best(epochs, TrainOptions(**options))  # type: ignore[arg-type]


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


@pytest.mark.parametrize("mode", ["max", "min"])
def test_of_equal_metrics_the_one_with_the_lower_validation_loss_is_the_best(mode: str) -> None:
    epochs = [{"loss": 1.0, "validation_loss": loss, "accuracy": 1.0} for loss in (0.3, 0.1, 0.1, 0.2)]
    assert find_best(epochs, monitor="accuracy", monitor_mode=mode) == 1


def test_epochs_without_the_metric_have_no_best_and_do_not_count_for_early_stopping() -> None:
    epochs, options = [{"loss": 0.1}] * 3, TrainOptions(monitor="accuracy", monitor_mode="max")
    assert history.find_best(epochs, options) is None
    assert count_epochs_since_best(History(epochs), options) == 0
    assert count_epochs_since_best(History([*epochs, *ACCURACIES], best=4), options) == 2
