"""Binary columns: image files of scikit-learn's digits."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.data.reading.images import decode_gray
from trainyard.trainer.loop.fit import fit
from trainyard.trainer.model.artifacts.trained_model import load_model

FILES = "tests.trainer.recipes:files"
IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = IMAGES.reshape(-1, 8, 8).astype(np.uint8)


def png(image: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "png")
    return file.getvalue()


def digits(rows: slice) -> datasets.Columns:
    return {"image": [png(image) for image in IMAGES[rows]], "label": LABELS[rows], "row": np.arange(1797)[rows]}


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> str:
    return datasets.write(tmp_path_factory.mktemp("digits"), {"train": digits(slice(1200))})


def read(uri: str, **options: Any) -> Iterator[dict[str, torch.Tensor]]:
    return iter(Dataset(uri, batch_size=100, **{"decode": {"image": decode_gray}} | options))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"shuffle": False}, {"world": 3, "rank": 1}])
def test_each_row_is_the_image_that_was_written(batches: str, options: dict[str, Any]) -> None:
    seen = 0
    for batch in read(batches, **options):
        assert batch["image"].dtype == torch.uint8
        assert np.array_equal(batch["image"][:, 0], IMAGES[batch["row"]])
        seen += len(batch["row"])
    assert seen == 1200 or "world" in options


@pytest.mark.slow
def test_a_first_image_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    rows = digits(slice(4)) | {"image": [b"no image", *digits(slice(1, 4))["image"]]}
    uri = datasets.write(tmp_path / "bad", {"train": rows})
    with pytest.raises(TrainyardError, match="row 0 of shard"):
        next(read(uri))


def test_any_integer_is_a_seed_of_random_changes(batches: str) -> None:
    def add_noise(image: np.ndarray[Any, Any], random: np.random.Generator) -> np.ndarray[Any, Any]:
        return image + random.integers(0, 9, image.shape, dtype=np.uint8)

    first, second = (next(read(batches, seed=-1, augment={"image": add_noise})) for _ in range(2))
    assert torch.equal(first["image"], second["image"])


def test_a_process_forked_from_a_reader_can_read(batches: str) -> None:
    data = Dataset(batches, batch_size=100, decode={"image": decode_gray})
    here = [batch["row"].tolist() for batch in data]
    data.set_epoch(0)
    assert [batch["row"].tolist() for batch in DataLoader(data, batch_size=None, num_workers=1)] == here


def test_a_row_is_augmented_alike_on_every_worker_and_differently_in_each_epoch(batches: str) -> None:
    def noise(image: Any, random: np.random.Generator) -> Any:
        return image + random.integers(0, 100)

    def epoch(number: int, world: int) -> dict[int, float]:
        means = {}
        for rank in range(world):
            data = Dataset(
                batches, batch_size=100, rank=rank, world=world, decode={"image": decode_gray}, augment={"image": noise}
            )
            data.set_epoch(number)
            for batch in data:
                means |= zip(batch["row"].tolist(), batch["image"].float().mean((1, 2, 3)).tolist(), strict=True)
        return means

    assert epoch(0, 1) == epoch(0, 3) != epoch(1, 1)


@pytest.mark.slow
def test_a_recipe_learns_from_files_and_its_model_artifact_decodes_them(batches: str, tmp_path: Path) -> None:
    artifact = fit(
        FILES, recipe_params={"augment": True}, dataset=batches, model=str(tmp_path), epochs=6, batch_size=50
    ).artifact
    assert artifact
    assert [(c.kind, c.type, c.shape) for c in artifact.inputs] == [("tensor", "uint8", (1, 8, 8))]
    rows = digits(slice(1200, 1797))
    model = load_model(str(tmp_path))
    guess = model.predict({"image": rows["image"]})["class_"]
    assert (guess == rows["label"]).mean() > 0.8
    assert (guess == model.predict({"image": IMAGES[1200:]})["class_"]).all(), "decoded arrays are used as they are"
    objects = np.array(rows["image"], dtype=object)
    assert (guess == model.predict({"image": objects})["class_"]).all(), "as pandas has them"
    assert len(model.predict({"image": []})["class_"]) == 0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [b"no image"],
            r"row 1150 of .*train-1.arrow \(label=8, row=1150\) cannot be decoded \(UnidentifiedImage.*b'no image'",
        ),
        ([None], r"row 1150 of shard .*train-1.arrow \(label=8, row=1150\) cannot be decoded .* it is empty, or null"),
        (
            [png(IMAGES[0][:4])],
            r"train-1.arrow \(.*\) is decoded to uint8 \[1, 4, 8\], but the first row to uint8 \[1, 8, 8\]",
        ),
    ],
)
def test_the_error_for_a_row_unlike_the_others_names_it_and_its_shard(
    tmp_path: Path, rows: list[Any], message: str
) -> None:
    columns = digits(slice(1200))
    columns["image"][1150:1151] = rows
    uri = datasets.write(tmp_path, {"train": columns})
    with pytest.raises(TrainyardError, match=message.replace("row 1150 of", "row 550 of")):
        list(read(uri))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"decode": {}},
            r"column 'image' holds bytes, .* decode=\{'image': function\}; trainyard.trainer.decode_rgb",
        ),
        (
            {"decode": {"image": decode_gray, "label": decode_gray}},
            "decode= names the column 'label', which does not hold bytes",
        ),
        ({"augment": {"label": np.roll}}, "augment= names the column 'label', which has no decoder"),
    ],
)
def test_binary_columns_and_decoders_that_do_not_match_are_refused(
    batches: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(TrainyardError, match=message):
        list(read(batches, **options))
