"""Sampling of rows by weight, and of classes equally often."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.loop.fit import fit

ROWS = 1000


def skewed() -> datasets.Columns:
    """Return rows of three classes, one of them 5% of the rows; weights are 1, 2, 4, ... for every ten rows."""
    rng = np.random.default_rng(0)
    blobs = datasets.blobs(ROWS)
    label = rng.choice(3, ROWS, p=[0.75, 0.2, 0.05])
    weight = 2.0 ** (np.arange(ROWS) % 10)
    return {"x": blobs["x"], "label": label, "row": np.arange(ROWS), "weight": weight}


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    return datasets.write(tmp_path_factory.mktemp("skewed"), {"train": skewed()})


def count_draws(uri: str, column: str, **options: Any) -> Counter[int]:
    counts: Counter[int] = Counter()
    for batch in Dataset(uri, batch_size=50, **options):
        counts.update(batch[column].tolist())
    return counts


def test_balanced_classes_are_drawn_equally_often_in_an_epoch_of_the_same_length(batches: str) -> None:
    counts = count_draws(batches, "label", balance="label")
    assert counts.total() == ROWS
    assert all(abs(count - ROWS / 3) <= 50 for count in counts.values())
    assert count_draws(batches, "label")[2] < 80, "without balance="


def test_rows_are_drawn_in_proportion_to_a_column(batches: str) -> None:
    counts = count_draws(batches, "row", weight_by="weight")
    weights = skewed()["weight"]
    expected = weights / weights.mean()
    assert counts.total() == ROWS
    assert all(abs(counts[row] - expected[row]) < 1 for row in range(ROWS))


def test_the_column_of_weights_need_not_be_among_the_columns(batches: str) -> None:
    assert count_draws(batches, "row", columns=["row"], weight_by="weight") == count_draws(
        batches, "row", weight_by="weight"
    )


def test_workers_share_the_rows_that_are_drawn(batches: str) -> None:
    alone = count_draws(batches, "row", weight_by="weight")
    together = sum(
        (count_draws(batches, "row", weight_by="weight", rank=rank, world=3) for rank in range(3)), Counter()
    )
    assert together == alone


def test_a_resumed_epoch_has_the_same_rows(batches: str) -> None:
    data, resumed = (Dataset(batches, batch_size=50, balance="label") for _ in range(2))
    iteration = iter(data)
    for _ in range(7):
        next(iteration)
    resumed.load_state_dict(data.state_dict())
    remaining = [batch["row"].tolist() for batch in iteration]
    assert [batch["row"].tolist() for batch in resumed] == remaining and len(remaining) == 13


def test_a_recipe_trains_on_sampled_rows(batches: str, tmp_path: Path) -> None:
    for options in ({"balance": True}, {"weight_by": "weight"}):
        fit("tests.trainer.recipes:linear", dataset=batches, model=str(tmp_path), epochs=1, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": True, "weight_by": "weight"}, "balance=True and weight_by='weight' exclude each other"),
        ({"weight_by": "nope"}, "has no column 'nope'"),
        ({"weight_by": "x"}, "rows are weighted by one number each, but column 'x' is a tensor"),
        (
            {"weight_by": "below"},
            "weight_by='below': values are -1 to 2 in split 'train' of .*; weights must be finite numbers from 0 on",
        ),
        ({"weight_by": "nothing"}, "weight_by='nothing': all weights of split 'train' of .* are 0"),
        ({"balance": True, "recipe_params": {"label": "number"}}, "label 'number' has more than 1,000 values"),
    ],
)
def test_invalid_weights_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    rows = skewed() | {"below": np.arange(ROWS) % 4 - 1, "nothing": np.zeros(ROWS), "number": np.arange(ROWS) / 7}
    longer = {name: np.concatenate([values, values + 1]) for name, values in rows.items() if name != "nothing"}
    uri = datasets.write(tmp_path, {"train": longer | {"nothing": np.zeros(2 * ROWS)}})
    with pytest.raises(TrainyardError, match=message):
        fit("tests.trainer.recipes:linear", dataset=uri, model=str(tmp_path / "m"), epochs=1, **options)
