"""Decoders of images, compared with Pillow."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_sample_image

from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.trainer import fit, load_model
from trainyard.trainer.data.dataset import Dataset
from trainyard.trainer.data.reading.decoding import decode_rows
from trainyard.trainer.data.reading.images import FORMATS, CenterCrop, RandomResizedCrop, decode_gray, decode_rgb

PHOTO = Image.fromarray(load_sample_image("china.jpg"))  # 640 x 427


def encode(image: Image.Image, kind: str = "jpeg", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    return encode(Image.fromarray(pixels), "png")


def crop(image: Image.Image, box: tuple[float, ...], size: int) -> np.ndarray[Any, Any]:
    """Return a part of an image as Pillow resizes it, (3, size, size)."""
    whole = tuple(map(round, box))
    return np.asarray(image.crop(whole).resize((size, size), Image.Resampling.BILINEAR)).transpose(2, 0, 1)


def distance(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    """Return the mean difference of pixels."""
    return float(np.abs(one.astype(float) - other).mean())


def test_images_are_decoded_as_by_pillow() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(decode_rgb(png(picture)), picture.transpose(2, 0, 1))
    assert np.array_equal(decode_gray(png(picture))[0], Image.fromarray(picture).convert("L"))


def test_all_16_bits_of_a_gray_image_are_scaled_to_8() -> None:
    picture = (np.arange(128, dtype=np.uint16) * 512).reshape(8, 16)
    assert np.array_equal(decode_gray(png(picture))[0], picture >> 8)
    assert np.array_equal(decode_rgb(png(picture)), np.stack([picture >> 8] * 3))


def test_a_photo_is_turned_upright() -> None:
    picture, file, exif = np.zeros((4, 6), np.uint8), io.BytesIO(), Image.Exif()
    picture[0] = 255
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    Image.fromarray(picture).save(file, "png", exif=exif)
    assert np.array_equal(decode_gray(file.getvalue())[0], np.rot90(picture, -1))


@pytest.mark.parametrize(("kind", "words"), [(np.float32, "floats"), (np.int32, "32-bit integers")])
def test_an_image_whose_range_is_not_known_is_refused_with_its_row(kind: Any, words: str) -> None:
    file = io.BytesIO()
    Image.fromarray(np.zeros((2, 2), kind)).save(file, "tiff")
    message = f"column 'image': row 0 cannot be decoded .*its pixels are {words}, whose range is not known; set decode="
    with pytest.raises(TrainyardError, match=message):
        decode_rows("image", decode_gray, [file.getvalue()])


@pytest.mark.slow
def test_an_image_of_a_few_bytes_with_very_many_pixels_is_refused() -> None:
    stream = io.BytesIO()
    Image.new("1", (12_000, 12_000)).save(stream, "PNG")
    assert len(stream.getvalue()) < 50_000
    with pytest.raises(ValueError, match=r"it has 12000 x 12000 pixels, and 67,108,864 are allowed; make it smaller"):
        decode_rgb(stream.getvalue())


def test_a_format_that_pillow_reads_with_another_program_is_refused() -> None:
    stream = io.BytesIO()
    Image.new("RGB", (2, 2)).save(stream, "EPS")
    with pytest.raises(OSError, match="cannot identify image file"):
        decode_rgb(stream.getvalue())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("size", "tolerance"), [(500, 0.0), (224, 0.0), (32, 1.5)])
def test_the_center_is_seven_eighths_of_the_shorter_side(size: int, tolerance: float, turned: bool) -> None:
    photo = PHOTO.rotate(90, expand=True) if turned else PHOTO
    data, side = encode(photo, quality=95), 427 * 0.875
    left, top = (photo.width - side) / 2, (photo.height - side) / 2
    box = (left, top, left + side, top + side)
    expected = np.asarray(Image.open(io.BytesIO(data)).resize((size, size), Image.Resampling.BILINEAR, box=box))
    decoded = CenterCrop(size)(data)
    assert decoded.shape == (3, size, size) and decoded.dtype == np.uint8
    assert distance(decoded, expected.transpose(2, 0, 1)) <= tolerance


@pytest.mark.parametrize("size", [300, 100, 50, 24])
def test_a_random_part_is_that_of_pillow_also_where_a_smaller_image_is_decoded(size: int) -> None:
    data, random_crop = encode(PHOTO, quality=95), RandomResizedCrop(size, flip=0)
    for seed in range(20):
        box = random_crop.draw(640, 427, np.random.default_rng(seed))
        decoded = random_crop.decode(data, np.random.default_rng(seed))
        expected = crop(Image.open(io.BytesIO(data)), box, size)
        is_smaller = min(box[2] - box[0], box[3] - box[1]) >= 4 * size
        assert distance(decoded, expected) < (2.5 if is_smaller else 0.3)


@pytest.mark.parametrize("kind", ["jpeg", "mpo", "png", "tiff", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_part_of_a_turned_photo_is_that_of_the_upright_one(kind: str, orientation: int) -> None:
    exif, more = Image.Exif(), {"save_all": True, "append_images": [PHOTO]} if kind == "mpo" else {}
    exif[0x0112] = orientation
    more |= {"lossless": True} if kind == "webp" else {"quality": 95} if kind in ("jpeg", "mpo") else {}
    turned = encode(PHOTO, kind, exif=exif, **more)
    upright = png(decode_rgb(turned).transpose(1, 2, 0))
    tolerance = 2.5 if kind in ("jpeg", "mpo") else 0
    for decode in (CenterCrop(64), CenterCrop(64, mode="L"), seeded(RandomResizedCrop(64))):
        assert distance(decode(turned), decode(upright)) <= tolerance


def seeded(crop: RandomResizedCrop) -> Callable[[bytes], Any]:
    return lambda data: crop.decode(data, np.random.default_rng(3))


def test_half_of_the_random_parts_are_mirrored() -> None:
    plain, mirrored, half = (RandomResizedCrop(16, flip=share) for share in (0.0, 1.0, 0.5))
    data, seeds = encode(PHOTO), range(100)
    one, other, mixed = (
        [each.decode(data, np.random.default_rng(s)) for s in seeds] for each in (plain, mirrored, half)
    )
    assert all(np.array_equal(a[:, :, ::-1], b) for a, b in zip(one, other, strict=True))
    assert 30 < sum(np.array_equal(a, b) for a, b in zip(one, mixed, strict=True)) < 70


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(0, 2**32))
def test_random_parts_are_within_the_image_with_the_areas_and_shapes_asked_for(w: int, h: int, seed: int) -> None:
    left, top, right, bottom = RandomResizedCrop(8).draw(w, h, np.random.default_rng(seed))
    assert 0 <= left < right <= w and 0 <= top < bottom <= h
    if min(w, h) > 400 and max(w, h) < 2 * min(w, h):  # a part fits, and rounding changes it by less than a percent
        assert 0.07 < (right - left) * (bottom - top) / (w * h) <= 1.01
        assert 0.74 < (right - left) / (bottom - top) < 1.35


def test_areas_are_drawn_evenly_and_shapes_by_their_logarithm() -> None:
    random = np.random.default_rng(0)
    boxes = np.array([RandomResizedCrop(8, scale=(0.1, 0.5)).draw(2000, 2000, random) for _ in range(2000)])
    width, height = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert abs((width * height / 4e6).mean() - 0.3) < 0.01
    assert abs(np.log(width / height).mean()) < 0.02


def encode_all() -> dict[str, bytes]:
    """Return a file of each kind and mode that there is."""
    files = {}
    for kind, mode in itertools.product(FORMATS, ["L", "RGB", "RGBA", "P", "CMYK", "1", "LA"]):
        with suppress(OSError, ValueError):  # Pillow has no such files
            files[f"{kind}-{mode}"] = encode(PHOTO.resize((90, 60)).convert(mode), kind)
    return files


def test_each_kind_of_image_is_cropped() -> None:
    files = encode_all()
    assert len(files) > 30 and {name.split("-")[0] for name in files} == set(FORMATS)
    for name, data in files.items():
        for decoded in (CenterCrop(16)(data), RandomResizedCrop(16).decode(data, np.random.default_rng(0))):
            assert decoded.shape == (3, 16, 16) and decoded.dtype == np.uint8 and decoded.std() > 10, name


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CenterCrop(0), r"CenterCrop\(size=0\): write the pixels of a side"),
        (lambda: CenterCrop(8, share=2), r"CenterCrop\(share=2\): write a part of the shorter side, at most 1"),
        (lambda: CenterCrop(8, mode="gray"), r'CenterCrop\(mode=.gray.\): write "RGB", or "L" for gray'),  # type: ignore[arg-type]
        (
            lambda: RandomResizedCrop(8, scale=(0, 1)),
            r"RandomResizedCrop\(scale=\(0, 1\)\): write two parts of an area",
        ),
        (lambda: RandomResizedCrop(8, ratio=(2, 1)), r"ratio=\(2, 1\)\): write two ratios, the smaller one first"),
        (lambda: RandomResizedCrop(8, flip=50), r"flip=50\): write a probability"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(build: Any, message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        build()


def test_a_dataset_has_random_parts_in_training_alike_on_all_workers_and_the_center_elsewhere(tmp_path: Path) -> None:
    files = [encode(PHOTO.resize((60 + 7 * n, 40 + n))) for n in range(40)]
    uri = datasets.write(tmp_path, {"train": {"image": files, "row": np.arange(40)}})

    def read(epoch: int = 0, world: int = 1, **options: Any) -> dict[int, bytes]:
        rows = {}
        for rank in range(world):
            data = Dataset(uri, batch_size=8, rank=rank, world=world, decode={"image": CenterCrop(24)}, **options)
            data.set_epoch(epoch)
            for batch in data:
                assert batch["image"].shape[1:] == (3, 24, 24)
                pixels = (image.numpy().tobytes() for image in batch["image"])
                rows |= zip(batch["row"].tolist(), pixels, strict=True)
        return rows

    augment = {"image": RandomResizedCrop(24)}
    centers = read()
    assert {row: CenterCrop(24)(data).tobytes() for row, data in enumerate(files)} == centers
    assert read(augment=augment) == read(augment=augment, world=3)
    parts, later = read(augment=augment), read(1, augment=augment)
    assert all(parts[row] != later[row] != centers[row] for row in range(40))


@pytest.mark.slow
def test_a_model_learns_from_random_parts_and_predicts_by_the_center(tmp_path: Path) -> None:
    photos = [load_sample_image(name) for name in ("china.jpg", "flower.jpg")]
    files = [
        encode(Image.fromarray(photos[n % 2][50 + n : 250, 60 + 2 * n : 330]).resize((60 + n, 50 + n)), quality=90)
        for n in range(60)
    ]
    parts = {"train": slice(0, 40), "validation": slice(40, 60)}
    columns = {name: {"image": files[part], "label": np.arange(60)[part] % 2} for name, part in parts.items()}
    uri = datasets.write(tmp_path / "dataset", columns)
    fit("tests.trainer.recipes:crops", dataset=uri, model=str(tmp_path / "model"), epochs=20, batch_size=10)
    model = load_model(str(tmp_path / "model"))
    guess = model.output({"image": files[40:]}).argmax(1)
    assert (guess.cpu().numpy() == np.arange(40, 60) % 2).mean() > 0.9
    with pytest.raises(TrainyardError, match=r"but its rows have shape .* from its decode= and its augment="):
        fit(
            "tests.trainer.recipes:crops", recipe_params={"augmented": 32}, dataset=uri,
            model=str(tmp_path / "other"), epochs=1, batch_size=10,
        )  # fmt: skip
