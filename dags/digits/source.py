"""Write the source of the example: scikit-learn's 1,797 handwritten digits as PNG files."""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor

from trainyard.files import storage, uris

SCALE = 15
"""The 17 shades of the digits, 0 to 16, become 0 to 240 in the files."""


def write(directory: str) -> str:
    """Write `DIRECTORY/LABEL/NUMBER.png`, unless the files exist; return the URI of the directory."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    marker = uris.join(directory, "_SUCCESS")
    if storage.exists(marker):
        return directory

    def save(number: int) -> None:
        png = io.BytesIO()
        Image.fromarray((digits.images[number] * SCALE).astype("uint8")).save(png, "png")
        storage.replace(uris.join(directory, str(digits.target[number]), f"{number:04d}.png"), png.getvalue())

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(save, range(len(digits.target))))
    storage.replace(marker, b"")
    return directory
