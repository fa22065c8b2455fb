"""Cross-validation: a fold validates, and all others are trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Statistics, read_current
from trainyard.trainer.data.folds import hold_out
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.loop.fit import fit

SIZES = {"fold-1": 31, "fold-2": 1, "fold-3": 64, "test": 20}


def write(directory: Path, sizes: dict[str, int]) -> str:
    rows = datasets.blobs(sum(sizes.values()))
    ends = np.cumsum(list(sizes.values()))
    parts = {
        name: {column: values[end - size : end] for column, values in rows.items()}
        for (name, size), end in zip(sizes.items(), ends, strict=True)
    }
    return datasets.write(directory, parts, rows_per_batch=7, shards=1)


def read(uri: str, manifest, split: str) -> np.ndarray:  # type: ignore[no-untyped-def, type-arg]
    reader = SplitReader(uri, manifest, split, ("x",))
    return np.concatenate([reader.block(number)["x"] for number in range(len(reader.blocks))])


@pytest.mark.parametrize("fold", [1, 2, 3])
def test_each_row_is_in_one_split_and_those_of_the_fold_validate(tmp_path: Path, fold: int) -> None:
    uri = write(tmp_path / "dataset", SIZES)
    whole = read_current(uri)
    held = hold_out(whole, fold)
    assert list(held.splits) == ["train", "validation", "test"]
    others = [read(uri, whole, f"fold-{number}") for number in (1, 2, 3) if number != fold]
    assert np.array_equal(read(uri, held, "train"), np.concatenate(others))
    assert np.array_equal(read(uri, held, "validation"), read(uri, whole, f"fold-{fold}"))
    assert held.rows == whole.rows and held.content_hash != whole.content_hash


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=3, max_size=5))
def test_the_statistics_of_the_other_folds_are_those_of_one_split(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("folds")
    held = hold_out(read_current(write(folder / "folds", {f"fold-{n}": size for n, size in enumerate(sizes, 1)})), 1)
    expected = read_current(write(folder / "whole", {"validation": sizes[0], "train": sum(sizes[1:])}))
    for column in ("x", "label"):
        own, other = (manifest.splits["train"].statistics[column] for manifest in (held, expected))
        assert (own.count, own.nulls, own.values) == (other.count, other.nulls, other.values)
        assert own.min == other.min and own.max == other.max
        assert own.mean == pytest.approx(other.mean, rel=1e-6, abs=1e-6)
        assert own.std == pytest.approx(other.std, rel=1e-5, abs=1e-5)


def test_a_column_without_values_in_a_fold_takes_its_statistics_from_the_others(tmp_path: Path) -> None:
    uri = write(tmp_path / "dataset", {"fold-1": 8, "fold-2": 9, "fold-3": 10})
    whole = read_current(uri)
    splits = {}
    for name, split in whole.splits.items():
        known = split.statistics["x"] if name == "fold-3" else Statistics(count=0)
        splits[name] = split.model_copy(
            update={"statistics": {"x": known, "label": Statistics(count=0, nulls=split.rows)}}
        )
    train = hold_out(whole.model_copy(update={"splits": splits}), 1).splits["train"].statistics
    assert train["x"] == whole.splits["fold-3"].statistics["x"].model_copy(update={"values": None})
    assert (train["label"].count, train["label"].nulls, train["label"].mean) == (0, 19, ())


@pytest.mark.parametrize("fold", [1, 4, 10])
def test_all_other_folds_are_trained_on_where_a_fold_without_rows_is_missing(tmp_path: Path, fold: int) -> None:
    uri = write(tmp_path / "dataset", {"fold-1": 9, "fold-10": 30, "fold-2": 20, "fold-4": 31})
    whole = read_current(uri)
    held = hold_out(whole, fold)
    assert list(held.splits) == ["train", "validation"]
    others = [read(uri, whole, f"fold-{number}") for number in (1, 2, 4, 10) if number != fold]
    assert np.array_equal(read(uri, held, "train"), np.concatenate(others))
    assert np.array_equal(read(uri, held, "validation"), read(uri, whole, f"fold-{fold}"))


@pytest.mark.parametrize(
    ("sizes", "fold", "message"),
    [
        (SIZES, 4, "fold=4: the dataset has no such fold; it has fold-1, fold-2, fold-3."),
        ({"fold-1": 9, "fold-3": 9}, 2, "fold=2: the dataset has no such fold; it has fold-1, fold-3."),
        (
            {"train": 9, "validation": 9}, 4,
            "fold=4: the dataset has no such fold; it has none: export it with folds=.",
        ),
        ({"fold-2": 9, "test": 9}, 2, "fold=2: the dataset has no other fold to train on; it has fold-2."),
    ],
)  # fmt: skip
def test_a_fold_that_does_not_exist_or_is_the_only_one_is_refused(
    tmp_path: Path, sizes: dict[str, int], fold: int, message: str
) -> None:
    uri = write(tmp_path / "dataset", sizes)
    with pytest.raises(TrainyardError) as refused:
        fit("tests.trainer.recipes:linear", dataset=uri, model=str(tmp_path / "model"), fold=fold)
    assert str(refused.value) == message


def test_a_training_on_folds_equals_one_on_splits_of_the_same_rows(tmp_path: Path) -> None:
    folds = write(tmp_path / "folds", {"fold-1": 50, "fold-2": 98, "fold-3": 49})
    splits = write(tmp_path / "splits", {"validation": 50, "train": 147})
    options = {"epochs": 2, "batch_size": 30}
    held = fit("tests.trainer.recipes:linear", dataset=folds, model=str(tmp_path / "a"), fold=1, **options)
    plain = fit("tests.trainer.recipes:linear", dataset=splits, model=str(tmp_path / "b"), **options)
    assert held.metrics["validation_loss"] == pytest.approx(plain.metrics["validation_loss"], rel=0.2)
    assert held.metrics["accuracy"] == plain.metrics["accuracy"]
