"""Decoders of image files (JPEG, PNG and other formats of Pillow), for `decode=` of a recipe or dataset."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from trainyard.trainer.data.jagged import Array


def decode_rgb(data: bytes) -> Array:
    """Decode an image to uint8 (3, height, width)."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).transpose(2, 0, 1)


def decode_gray(data: bytes) -> Array:
    """Decode an image to grayscale, uint8 (1, height, width)."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("L"))[None]
