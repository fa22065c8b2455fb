"""Variable-length columns: reading, training, prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer import datasets
from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model
from trainyard.trainer.world import World

POOLED = "tests.trainer.recipes:pooled"


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    splits = {"train": datasets.sequences(500), "validation": datasets.sequences(100, seed=1)}
    return datasets.write(tmp_path_factory.mktemp("sequences"), splits)


@pytest.mark.parametrize("sequences", ["padded", "nested"])
@pytest.mark.parametrize("bucket_by", [None, "tokens"])
@pytest.mark.parametrize("world", [1, 3])
def test_each_row_is_read_once_with_all_its_elements(
    batches: str, sequences: Any, bucket_by: str | None, world: int
) -> None:
    written, seen = datasets.sequences(500), []
    for rank in range(world):
        data = Dataset(batches, batch_size=48, rank=rank, world=world, sequences=sequences, bucket_by=bucket_by)
        for batch in data:
            for number, row in enumerate(batch["row"].tolist()):
                own = batch["tokens_mask"][number] if sequences == "padded" else ...
                assert np.array_equal(batch["tokens"][number][own], written["tokens"][row])
                assert np.array_equal(batch["frames"][number][own], written["frames"][row])
                seen.append(row)
    assert sorted(seen) == list(range(500))


def test_buckets_reduce_padding(batches: str) -> None:
    def cells(bucket_by: str | None) -> int:
        data = Dataset(batches, columns=["tokens"], batch_size=50, bucket_by=bucket_by)
        return sum(batch["tokens"].numel() for batch in data)

    assert cells("tokens") < 0.7 * cells(None)


@pytest.mark.slow
def test_a_recipe_learns_the_same_from_padded_and_nested_rows(batches: str, tmp_path: Path) -> None:
    def history(sequences: str, **options: Any) -> list[float]:
        fitted = fit(
            POOLED, recipe_params={"sequences": sequences}, dataset=batches, model=str(tmp_path / sequences), epochs=2,
            batch_size=50, bucket_by="tokens", **options,
        )  # fmt: skip
        assert fitted.metrics["accuracy"] > 0.95
        return [epoch[name] for epoch in fitted.history.epochs for name in ("loss", "validation_loss")]

    padded = history("padded")
    assert history("nested") == pytest.approx(padded, rel=1e-4)
    assert history("nested", micro_batches=3) == pytest.approx(padded, rel=1e-3)
    rows = datasets.sequences(40, seed=2)
    models = [load_model(str(tmp_path / name)) for name in ("padded", "nested")]
    one, other = (model.output(rows) for model in models)
    assert torch.allclose(one, other, atol=1e-2)
    alone = models[0].output({name: values[:1] for name, values in rows.items()})
    assert torch.allclose(alone, one[:1], atol=1e-5), "the output of a row does not depend on the length of other rows"


def train_losses(world: World, batches: str, model: str, sequences: str, options: dict[str, Any]) -> list[float]:
    fitted = fit(
        POOLED, recipe_params={"sequences": sequences}, dataset=batches, model=model, world=world, epochs=1,
        batch_size=50, bucket_by="tokens", **options,
    )  # fmt: skip
    return [epoch[name] for epoch in fitted.history.epochs for name in ("loss", "validation_loss")]


@pytest.mark.ranks
def test_two_workers_learn_the_same_as_one(batches: str, tmp_path: Path) -> None:
    with Workers(2) as workers:
        for sequences, options in (("padded", {"balance": True}), ("nested", {"weight_by": "row"})):
            alone = train_losses(World(), batches, str(tmp_path), sequences, options)
            assert (
                workers(train_losses, batches, str(tmp_path), sequences, options)
                == [pytest.approx(alone, rel=1e-3)] * 2
            )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bucket_by": "label"}, "bucket_by='label' is not a variable-length column .* Write one of tokens, frames"),
        ({"recipe_params": {"sequences": "ragged"}}, "sequences='ragged' is not valid; write 'padded' or 'nested'"),
        (
            {"recipe_params": {"label": "tokens"}},
            "label 'tokens' differ in length.*batch\\['tokens_mask'\\]",
        ),
    ],
)
def test_invalid_options_are_refused(batches: str, tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        fit(POOLED, dataset=batches, model=str(tmp_path), **options)


def test_rows_with_elements_of_another_shape_are_refused_by_the_model(batches: str, tmp_path: Path) -> None:
    fit(POOLED, dataset=batches, model=str(tmp_path), epochs=1)
    rows = datasets.sequences(5) | {"frames": [np.zeros((3, 7), np.float32)] * 5}
    with pytest.raises(TrainyardError, match=r"'frames' with elements of shape \[4\], but its rows have .* \[7\]"):
        load_model(str(tmp_path)).output(rows)


def test_a_column_with_the_name_of_a_mask_is_refused(tmp_path: Path) -> None:
    rows = datasets.sequences(5) | {"tokens_mask": np.zeros(5)}
    with pytest.raises(TrainyardError, match="'tokens_mask' has the name of the mask of column 'tokens'"):
        Dataset(datasets.write(tmp_path, {"train": rows}), batch_size=2)
