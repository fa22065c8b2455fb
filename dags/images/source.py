"""Write the source of the example: tiles of the two photographs that scikit-learn has, as JPEG files of three sizes."""

from __future__ import annotations

import io
from pathlib import Path

from trainyard.files import storage, uris

SIZE = 32
"""The pixels of a tile, in each direction; its file has as many, or two or three times as many."""


def write(directory: str) -> str:
    """Write `DIRECTORY/PHOTOGRAPH/ROW-COLUMN.jpg`, unless the files exist; return the URI of the directory."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    marker = uris.join(directory, "_SUCCESS")
    if storage.exists(marker):
        return directory
    photographs = load_sample_images()
    for path, pixels in zip(photographs.filenames, photographs.images, strict=True):
        height, width, _ = pixels.shape
        for row in range(height // SIZE):
            for column in range(width // SIZE):
                top, left = row * SIZE, column * SIZE
                tile = Image.fromarray(pixels[top : top + SIZE, left : left + SIZE])
                side, jpeg = SIZE * (1 + (row + column) % 3), io.BytesIO()
                tile.resize((side, side)).save(jpeg, "jpeg")
                file = uris.join(directory, Path(path).stem, f"{row:02d}-{column:02d}.jpg")
                storage.replace(file, jpeg.getvalue())
    storage.replace(marker, b"")
    return directory
