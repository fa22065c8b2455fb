"""Images that are made smaller in a Spark job, compared with Pillow."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageCms
from pyspark.sql import SparkSession
from sklearn.datasets import load_sample_image

from trainyard.errors import TrainyardError
from trainyard.etl import shrink_images
from trainyard.etl.images import shrink_image

PHOTO = Image.fromarray(load_sample_image("flower.jpg"))  # 640 x 427


def encode(image: Image.Image, kind: str = "jpeg", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def decode(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def test_an_image_that_is_small_enough_stays_as_it_is() -> None:
    data = encode(PHOTO)
    assert shrink_image(data, 640) is data


def test_a_larger_one_is_what_pillow_makes_of_it() -> None:
    data = encode(PHOTO, quality=95)
    small = decode(shrink_image(data, 100))
    assert small.format == "JPEG" and small.size == (100, 67)
    expected = np.asarray(decode(data).resize((100, 67), Image.Resampling.LANCZOS), float)
    assert np.abs(np.asarray(small) - expected).mean() < 6, "it is encoded again"
    assert len(shrink_image(data, 100, quality=30)) < len(shrink_image(data, 100))


def test_a_smaller_photo_is_upright_and_keeps_its_colors() -> None:
    exif, profile = Image.Exif(), ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    small = decode(shrink_image(encode(PHOTO, exif=exif, icc_profile=profile), 100))
    assert small.size == (67, 100) and small.getexif().get(0x0112, 1) == 1
    assert small.info["icc_profile"] == profile
    expected = np.asarray(PHOTO.rotate(-90, expand=True).resize((67, 100), Image.Resampling.LANCZOS), float)
    assert np.abs(np.asarray(small) - expected).mean() < 6


@pytest.mark.parametrize(
    ("kind", "mode", "expected"),
    [
        ("png", "RGBA", ("PNG", "RGBA")),
        ("png", "P", ("PNG", "RGB")),
        ("png", "1", ("PNG", "L")),
        ("gif", "P", ("PNG", "RGB")),
        ("bmp", "RGB", ("PNG", "RGB")),
        ("ppm", "L", ("PNG", "L")),
        ("tiff", "L", ("TIFF", "L")),
        ("webp", "RGB", ("WEBP", "RGB")),
        ("jpeg", "CMYK", ("JPEG", "CMYK")),
        ("mpo", "RGB", ("JPEG", "RGB")),
        ("png", "I;16", ("PNG", "L")),
        ("tiff", "I;16", ("TIFF", "L")),
        ("tiff", "RGB", ("TIFF", "RGB")),
    ],
)
def test_each_kind_of_image_is_made_smaller(kind: str, mode: str, expected: tuple[str, str]) -> None:
    photo = Image.fromarray(np.asarray(PHOTO.convert("L"), np.uint16) << 8) if mode == "I;16" else PHOTO.convert(mode)
    options = {"mpo": {"save_all": True, "append_images": [PHOTO]}, "tiff": {"compression": "tiff_lzw"}}
    small = decode(shrink_image(encode(photo, kind, **options.get(kind, {})), 50))
    assert small.size == (50, 33) and (small.format, small.mode) == expected and np.asarray(small).std() > 20


def test_what_is_no_image_is_an_error_with_its_first_bytes() -> None:
    with pytest.raises(ValueError, match=r"an image of 8 bytes that begin with b'no image' cannot be decoded"):
        shrink_image(b"no image", 50)


def test_a_column_of_files_has_smaller_ones_and_nulls_stay(spark: SparkSession, tmp_path: Path) -> None:
    large, small = encode(PHOTO), encode(PHOTO.resize((40, 30)))
    rows = [(0, large), (1, None), (2, small), *((n, large) for n in range(3, 9))]
    spark.createDataFrame(rows, "id int, content binary").repartition(3).write.parquet(str(tmp_path / "files"))
    frame = spark.read.parquet(str(tmp_path / "files"))
    found = dict(frame.select("id", shrink_images("content", max_side=64).alias("image")).collect())
    assert bytes(found[2]) == small and found[1] is None and len(found) == 9
    assert all(bytes(found[n]) == shrink_image(large, 64) for n in (0, *range(3, 9)))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"max_side": 0}, r"shrink_images\(max_side=0\): write"), ({"max_side": 9, "quality": 0}, r"quality=0\): write")],
)
def test_a_number_out_of_range_is_refused_by_its_name(options: dict[str, int], message: str) -> None:
    with pytest.raises(TrainyardError, match=message):
        shrink_images("content", **options)
