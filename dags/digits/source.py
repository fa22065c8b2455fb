"""The source of the example: scikit-learn's 1,797 handwritten digits, one PNG file each."""

from __future__ import annotations

from pathlib import Path

SCALE = 15
"""The digits have 17 shades, 0 to 16; in the files they are spread over 0 to 240."""


def write(directory: str) -> str:
    """Write `DIRECTORY/LABEL/NUMBER.png`, unless they are there, and return the directory."""
    from PIL import Image
    from sklearn.datasets import load_digits

    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        path = Path(directory, str(label), f"{number:04d}.png")
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((image * SCALE).astype("uint8")).save(path)
    return directory
