"""Decoders of image files (JPEG, PNG and what else Pillow reads), for a recipe's `decode`."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from trainyard.trainer.data.jagged import Array


def rgb(data: bytes) -> Array:
    """uint8 (3, height, width)."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).transpose(2, 0, 1)


def gray(data: bytes) -> Array:
    """uint8 (1, height, width)."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("L"))[None]
