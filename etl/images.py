"""Make image files smaller before they are stored in a dataset."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial

import pandas as pd
from pyspark.sql import Column
from pyspark.sql import functions as F

from trainyard.errors import TrainyardError
from trainyard.trainer.data.reading.images import JPEG, open_image, to_8_bits, turn_upright

KEPT_FORMATS = ("PNG", "WEBP", "TIFF", "JPEG2000")
"""The formats beside JPEG that a smaller image keeps; those of few colors or without compression become PNG."""


def shrink_images(column: Column | str, max_side: int, quality: int = 90) -> Column:
    """Return a column of image files whose longer side has at most `max_side` pixels, for `prepare`.

    Files that are small enough stay as they are. Others are resized (Lanczos) and turned upright as their EXIF
    orientation says, and keep their format and color profile, except that GIF, BMP and PPM become PNG, and 16 bits
    become 8. It needs Pillow on the nodes.

    Args:
        column: A column of bytes, such as `content` of the format `binaryFile`.
        max_side: The pixels of the longer side.
        quality: The quality of JPEG and WebP, 1 to 100.

    Raises:
        TrainyardError: An argument is out of range. A file that is no image, or has more than 67 million pixels, ends
            the job.

    >>> def photographs(spark, source):
    ...     folder = F.element_at(F.split("path", "/"), -2)
    ...     return source.select("path", shrink_images("content", 512).alias("image"), folder.alias("kind"))
    """
    if max_side < 1:
        raise TrainyardError(f"shrink_images(max_side={max_side}): write a number of pixels, one or more.")
    if not 1 <= quality <= 100:
        raise TrainyardError(f"shrink_images(quality={quality}): write a number from 1 to 100.")
    shrink = partial(shrink_image, max_side=max_side, quality=quality)

    @F.pandas_udf("binary")  # type: ignore[call-overload, untyped-decorator, unused-ignore]
    def shrink_all(series: Iterator[pd.Series]) -> Iterator[pd.Series]:
        for files in series:
            yield files.map(shrink, na_action="ignore")

    return shrink_all(column)  # type: ignore[no-any-return, unused-ignore]


def shrink_image(data: bytes, max_side: int, quality: int = 90) -> bytes:
    """Return an image file whose longer side has at most `max_side` pixels: `data` itself if it is small enough.

    Raises:
        ValueError: It cannot be decoded.
    """
    from PIL import Image

    try:
        image = open_image(data)
        if max(image.size) <= max_side:
            return data
        kind = "JPEG" if image.format in JPEG else image.format if image.format in KEPT_FORMATS else "PNG"
        profile = image.info.get("icc_profile")
        if image.mode in ("P", "1"):  # their pixels are not numbers to average
            image = image.convert("L" if image.mode == "1" else "RGBA" if "transparency" in image.info else "RGB")
        elif image.mode.startswith("I;16"):
            image = to_8_bits(turn_upright(image))
        image.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
        file = io.BytesIO()
        options = {"quality": quality} if kind in ("JPEG", "WEBP") else {}
        turn_upright(image).save(file, kind, **options, **({"icc_profile": profile} if profile else {}))
        return file.getvalue()
    except Exception as error:
        raise ValueError(
            f"shrink_images: an image of {len(data):,} bytes that begin with {data[:8]!r} cannot be decoded "
            f"({type(error).__name__}: {error}); leave such rows out in prepare"
        ) from error
