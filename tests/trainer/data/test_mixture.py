"""Epochs of rows from several datasets, each with its share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import Statistics
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.data.mixture import Mixture, Portion, merge_statistics
from trainyard.trainer.data.reading.split_reader import SplitReader
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model

SIZES = {"large": 3000, "middle": 1000, "small": 100}


def rows(name: str) -> datasets.Columns:
    """Return blobs with the number of the dataset (`of`), and of the row in it (`row`)."""
    number, size = list(SIZES).index(name), SIZES[name]
    return datasets.blobs(size, number) | {"of": np.full(size, number), "row": np.arange(size)}


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("mixture")
    return {name: datasets.write(folder / name, {"train": rows(name), "validation": rows(name)}) for name in SIZES}


def mixture(three: dict[str, str], **options: Any) -> Dataset:
    mix = [Portion.of(three["middle"], 0.3), Portion.of(three["small"], 0.2)]
    return Dataset(three["large"], **{"columns": ["of", "row"], "batch_size": 100, "mix": mix} | options)


def test_each_dataset_has_its_share_of_an_epoch(three: dict[str, str]) -> None:
    numbers = torch.cat([batch["of"] for batch in mixture(three)])
    assert len(numbers) == 4100
    assert all(abs(int((numbers == n).sum()) - share * 4100) <= 1 for n, share in enumerate((0.5, 0.3, 0.2)))


def test_each_batch_has_about_the_same_mix(three: dict[str, str]) -> None:
    counts = [np.bincount(batch["of"], minlength=3) for batch in mixture(three)][:-1]
    assert np.abs(np.array(counts) - (50, 30, 20)).max() <= 6, "a lane in 64 on either side, and a row"


def test_a_mixture_has_the_name_of_its_first_dataset(three: dict[str, str]) -> None:
    parts = [SplitReader(uri, manifests.read_current(uri), "train", ("of",)) for uri in three.values()]
    parts[0].name = "first"
    assert Mixture(parts, (0.5, 0.3, 0.2)).name == "first"


def test_rows_of_a_dataset_are_drawn_equally_often(three: dict[str, str]) -> None:
    epoch = list(mixture(three))
    for number, size in enumerate(SIZES.values()):
        counts = Counter(row for batch in epoch for row in batch["row"][batch["of"] == number].tolist())
        draws = [counts[row] for row in range(size)]
        assert max(draws) - min(draws) <= 1


def test_batches_are_the_same_for_any_number_of_workers(three: dict[str, str]) -> None:
    def sets(batches: list[dict[str, torch.Tensor]]) -> Counter[tuple[int, int]]:
        return Counter(pair for b in batches for pair in zip(b["of"].tolist(), b["row"].tolist(), strict=True))

    alone = list(mixture(three))
    local = [list(mixture(three, rank=rank, world=3)) for rank in range(3)]
    for step, batch in enumerate(alone):
        assert sets([batch]) == sets([batches[step] for batches in local])


def test_shares_hold_together_with_balanced_classes_and_buckets(tmp_path: Path) -> None:
    names = {"one": 400, "other": 150}
    tagged = {n: datasets.sequences(size, i) | {"of": np.full(size, i)} for i, (n, size) in enumerate(names.items())}
    one, other = (datasets.write(tmp_path / name, {"train": columns}) for name, columns in tagged.items())
    data = Dataset(
        one, batch_size=50, balance="label", bucket_by="tokens", mix=[Portion.of(other, 0.4)],
    )  # fmt: skip
    epoch = list(data)
    of, label = (torch.cat([batch[name] for batch in epoch]) for name in ("of", "label"))
    assert abs(int((of == 1).sum()) - 220) <= 1
    counts = np.bincount(label[of == 1], minlength=3)
    assert np.abs(counts - 220 / 3).max() <= 15, counts


def test_a_model_artifact_of_a_mixture_lists_its_datasets(three: dict[str, str], tmp_path: Path) -> None:
    mix = [Portion.of(three["small"], 0.25), Portion.of(three["middle"], 0.25)]
    where = str(tmp_path / "model")
    fitted = fit("tests.trainer.recipes:linear", dataset=three["large"], mix=mix, model=where, epochs=1)
    assert fitted.metrics["accuracy"] > 0.9
    entry, _ = load_model(where).artifact.mix
    assert (entry.dataset, entry.share, entry.dataset_hash) == (three["small"], 0.25, mix[0].manifest.content_hash)
    (card,) = Path(where).glob("*/card.md")
    assert card.read_text().count("25% of the rows") == 2, "datasets with the same share"


@given(
    st.lists(st.integers(2, 9), min_size=1, max_size=3).flatmap(
        lambda sizes: st.tuples(*(st.lists(st.floats(-1e3, 1e3), min_size=n, max_size=n) for n in sizes))
    )
)
@settings(deadline=None)
def test_statistics_of_a_mixture_equal_those_of_its_rows(parts: tuple[list[float], ...]) -> None:
    statistics = [Statistics(count=len(p), mean=(float(np.mean(p)),), std=(float(np.std(p)),)) for p in parts]
    total = sum(map(len, parts))
    result = merge_statistics(statistics, [len(part) / total for part in parts])
    together = np.concatenate(parts)
    assert result.mean == pytest.approx((together.mean(),), abs=1e-6)
    assert result.std == pytest.approx((together.std(),), abs=1e-6)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([0.7, 0.3], "0.7, 0.3 are not valid"),
        ([0.0], "0 are not valid"),
        ([-0.5], "-0.5 are not valid"),
        ([1.5], "1.5 are not valid"),
    ],
)
def test_invalid_shares_are_refused(three: dict[str, str], shares: list[float], message: str) -> None:
    with pytest.raises(TrainyardError, match=f"mix: shares of {message}.* that add up to less"):
        mixture(three, mix=[Portion.of(three["small"], share) for share in shares])


def test_datasets_with_different_columns_are_refused(three: dict[str, str], tmp_path: Path) -> None:
    other = datasets.write(tmp_path, {"train": datasets.blobs(100, size=4)})
    with pytest.raises(TrainyardError, match=r"mix: column 'x' is a tensor of float \[8\] in .*, but a .* \[4\] in"):
        Dataset(three["large"], columns=["x"], batch_size=10, mix=[Portion.of(other, 0.5)])


def test_a_mixture_without_shuffling_is_refused(three: dict[str, str]) -> None:
    with pytest.raises(TrainyardError, match="mix= needs shuffle=True"):
        mixture(three, shuffle=False)
