"""Sampling of rows by weight, and of classes equally often."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.data.mixture import Portion
from trainyard.trainer.data.reading.cache import ShardCache
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.data.weights import MAX_CLASSES, build_weights, choose_unit
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.world import World

ROWS = 1000


def skewed() -> datasets.Columns:
    """Return rows of three classes, one of them 5% of the rows.

    In `weight` are 1, 2, 4, ... for every ten rows, in `rare` 1 for the rows of that class and 0 for others.
    """
    rng = np.random.default_rng(0)
    blobs = datasets.blobs(ROWS)
    label = rng.choice(3, ROWS, p=[0.75, 0.2, 0.05])
    weight = 2.0 ** (np.arange(ROWS) % 10)
    return {"x": blobs["x"], "label": label, "row": np.arange(ROWS), "weight": weight, "rare": 1.0 * (label == 2)}


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


def test_only_the_ratios_of_weights_matter(batches: str, tmp_path: Path) -> None:
    scaled = skewed() | {"weight": skewed()["weight"] * 2.0**40}
    uri = datasets.write(tmp_path, {"train": scaled})
    assert count_draws(uri, "row", weight_by="weight") == count_draws(batches, "row", weight_by="weight")


def test_the_mean_weight_is_a_unit(batches: str) -> None:
    reader = SplitReader(batches, manifests.read_current(batches), "train", ("weight",))
    weights = build_weights(reader, None, "weight", World())
    assert weights and sum(weights.blocks) == pytest.approx(choose_unit(ROWS) * ROWS)


def test_rows_of_each_dataset_of_a_mixture_are_weighted(batches: str) -> None:
    mix = [Portion.of(batches, 0.3)]
    assert set(count_draws(batches, "label", weight_by="rare", mix=mix)) == {2}
    counts = count_draws(batches, "label", balance="label", mix=mix)
    assert all(abs(count - 2 * ROWS / 3) <= 100 for count in counts.values())


def test_a_label_may_have_as_many_values_as_classes_are_allowed(tmp_path: Path) -> None:
    uri = datasets.write(tmp_path, {"train": {"label": np.arange(2 * MAX_CLASSES) // 2}})
    assert set(count_draws(uri, "label", balance="label").values()) == {2}


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


def count_trained_labels(uri: str, folder: Path, **options: Any) -> Counter[int]:
    """Return how often a training of one epoch has seen each label."""
    file = folder / "labels"
    params = {"file": str(file)}
    fit("tests.trainer.recipes:observing", dataset=uri, model=str(folder), epochs=1, recipe_params=params, **options)
    return Counter(int(label) for label in file.read_text().split())


def test_a_training_with_balance_sees_each_class_equally_often(batches: str, tmp_path: Path) -> None:
    counts = count_trained_labels(batches, tmp_path, balance=True, batch_size=50)
    assert counts.total() == ROWS
    assert all(abs(counts[label] - ROWS / 3) <= 50 for label in range(3))


def test_a_training_with_weight_by_sees_only_rows_that_have_a_weight(batches: str, tmp_path: Path) -> None:
    counts = count_trained_labels(batches, tmp_path, weight_by="rare", batch_size=50)
    assert counts == {2: ROWS}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"balance": True, "weight_by": "weight"}, "balance=True and weight_by='weight' exclude each other"),
        ({"weight_by": "nope"}, "has no column 'nope'"),
        ({"weight_by": "x"}, "rows are weighted by one number each, but column 'x' is a tensor"),
        (
            {"weight_by": "below"},
            "weight_by='below': values are -1 to 2 in split 'train' of .*; weights must be 0, or numbers from 1e-150",
        ),
        ({"weight_by": "tiny"}, "weight_by='tiny': values are 0 to 4.9.*e-324 in .* numbers from 1e-150 to"),
        ({"weight_by": "nothing"}, "weight_by='nothing': all weights of split 'train' of .* are 0"),
        (
            {"balance": True, "recipe_params": {"label": "number"}},
            "'number' has more than 1,000 values.*\\. Write weight_by=",
        ),
    ],
)
def test_invalid_weights_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    same = ("nothing", "tiny")
    rows = skewed() | {
        "below": np.arange(ROWS) % 4 - 1,
        "nothing": np.zeros(ROWS),
        "tiny": np.arange(ROWS) % 2 * 5e-324,
        "number": np.arange(ROWS),
    }
    longer = {name: np.concatenate([values, values + 1]) for name, values in rows.items() if name not in same}
    uri = datasets.write(tmp_path, {"train": longer | {name: np.tile(rows[name], 2) for name in same}})
    with pytest.raises(TrainyardError, match=message):
        fit("tests.trainer.recipes:linear", dataset=uri, model=str(tmp_path / "m"), epochs=1, **options)


def test_reading_weights_reports_progress_and_keeps_no_blocks(tmp_path: Path) -> None:
    """A split that is larger than the cache is read in ranges, which must not stay in memory."""
    local = datasets.write(tmp_path / "local", {"train": {"label": np.arange(400) % 3}}, rows_per_batch=10)
    fsspec.filesystem("memory").put(local, str(tmp_path), recursive=True)
    uri = f"memory://{tmp_path}"
    reader = SplitReader(uri, manifests.read_current(uri), "train", ("label",), cache=ShardCache(tmp_path / "c", 0))
    held: list[int] = []
    build_weights(reader, "label", None, World(), lambda: held.append(reader.fetched_bytes))
    assert len(held) == 2 * len(reader.blocks), "one report for each block, which is read twice"
    assert reader.fetched_bytes == 0
    assert max(held) < 17 * max(length for shard in reader._shards for length in shard.lengths)


@pytest.mark.parametrize("rows", [1, 10**6, 2**32, 2**33, 10**12])
def test_the_sum_of_all_weights_fits_into_64_bits_for_any_number_of_rows(rows: int) -> None:
    ends = np.cumsum(np.array([choose_unit(rows) * (rows // 2), choose_unit(rows) * (rows - rows // 2)]))
    assert ends[-1] == choose_unit(rows) * rows > 0
    assert choose_unit(rows) == 2**30 or rows >= 2**32
