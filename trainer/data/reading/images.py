"""Decoders of images: of whole ones, of their center, and of a random part that is decoded no larger than needed."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from trainyard.errors import TrainyardError

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")
"""The formats of images. Pillow reads more, some of them with other programs (EPS by Ghostscript)."""
JPEG = ("JPEG", "MPO")
"""The names that Pillow gives to JPEGs; those of some cameras have a second picture."""
MAX_PIXELS = 1 << 26
"""The size of an image: a file of some kilobytes can have gigabytes of pixels."""
SHARE_OF_CENTER = 0.875
"""The part of the shorter side that evaluations on ImageNet use: 224 of 256 pixels."""
TRIES = 10
"""How often a random area and shape are drawn until they are within the image; torchvision's number."""
_TURNED = (5, 6, 7, 8)
"""The EXIF orientations that exchange width and height."""
_ORIENTATION = 0x0112

Pixels = NDArray[np.uint8]
"""An image, (channels, height, width)."""
Mode = Literal["RGB", "L"]
"""Pillow's name for the colors: three channels, or gray."""
Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


def decode_rgb(data: bytes) -> Pixels:
    """Decode an image (one of `FORMATS`) to uint8 (3, height, width).

    It is turned upright as its EXIF orientation says, and 16 bits are scaled to 8. Images of floats or of 32 bits are
    errors.
    """
    return _to_array(turn_upright(open_image(data)), "RGB")


def decode_gray(data: bytes) -> Pixels:
    """Decode an image (one of `FORMATS`) to grayscale, uint8 (1, height, width).

    It is turned upright as its EXIF orientation says, and 16 bits are scaled to 8. Images of floats or of 32 bits are
    errors.
    """
    return _to_array(turn_upright(open_image(data)), "L")


@dataclass(frozen=True)
class CenterCrop:
    """A decoder of images of any size: the square in their center, resized to uint8 (3 or 1, size, size).

    It is what the usual pair of transforms gives that resizes the shorter side and crops the center, as evaluations on
    ImageNet do. A large JPEG is decoded at a half, a quarter or an eighth of its size, if that is twice what is needed.

    Attributes:
        size: The pixels of a side.
        share: The part of the shorter side that is kept, above 0, at most 1.
        mode: "RGB", or "L" for gray.
    """

    size: int
    share: float = SHARE_OF_CENTER
    mode: Mode = "RGB"

    def __post_init__(self) -> None:
        _check(self, self.size, self.mode)
        if not 0 < self.share <= 1:
            raise TrainyardError(f"CenterCrop(share={self.share}): write a part of the shorter side, at most 1.")

    def __call__(self, data: bytes) -> Pixels:
        """Return the center of an image (one of `FORMATS`)."""
        image, width, height = _open_upright(data)
        side = min(width, height) * self.share
        left, top = (width - side) / 2, (height - side) / 2
        box = (left, top, left + side, top + side)
        return _to_array(_crop(image, width, height, box, self.size, self.mode), self.mode)


@dataclass(frozen=True)
class RandomResizedCrop:
    """An `augment` of images of any size: a random part of random shape, resized to uint8 (3 or 1, size, size).

    It draws as torchvision's class of this name does: an area of `scale` of the image's, a logarithm of width / height
    of `ratio`, and a place, up to ten times until they are within the image. It takes the place of the decoder of its
    column in training, and decodes large JPEGs as `CenterCrop` does.
    Evaluations and predictions use the decoder, such as `CenterCrop` of the same size.

    Attributes:
        size: The pixels of a side.
        scale: The smallest and the largest part of the image's area.
        ratio: The smallest and the largest width / height.
        flip: The probability of the mirror image.
        mode: "RGB", or "L" for gray.
    """

    size: int
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    mode: Mode = "RGB"

    def __post_init__(self) -> None:
        _check(self, self.size, self.mode)
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise TrainyardError(f"RandomResizedCrop(scale={self.scale}): write two parts of an area, up to 1.")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise TrainyardError(f"RandomResizedCrop(ratio={self.ratio}): write two ratios, the smaller one first.")
        if not 0 <= self.flip <= 1:
            raise TrainyardError(f"RandomResizedCrop(flip={self.flip}): write a probability.")

    def decode(self, data: bytes, random: np.random.Generator) -> Pixels:
        """Return a random part of an image (one of `FORMATS`)."""
        image, width, height = _open_upright(data)
        cropped = _crop(image, width, height, self.draw(width, height, random), self.size, self.mode)
        mirrored = random.random() < self.flip
        pixels = _to_array(cropped, self.mode)
        return pixels[:, :, ::-1] if mirrored else pixels

    def draw(self, width: int, height: int, random: np.random.Generator) -> Box:
        """Return a random part of an image of a width and a height."""
        for _ in range(TRIES):
            area = width * height * random.uniform(*self.scale)
            ratio = math.exp(random.uniform(math.log(self.ratio[0]), math.log(self.ratio[1])))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                left, top = int(random.integers(width - w + 1)), int(random.integers(height - h + 1))
                return left, top, left + w, top + h
        w = min(width, max(1, round(height * self.ratio[1])))  # the largest part in the center that has a right shape
        h = min(height, max(1, round(width / self.ratio[0])))
        left, top = (width - w) // 2, (height - h) // 2
        return left, top, left + w, top + h


def open_image(data: bytes) -> Image:
    """Return an image whose pixels are not decoded yet. Raises ValueError if it has too many."""
    from PIL import Image

    image = Image.open(io.BytesIO(data), formats=FORMATS)
    if image.width * image.height > MAX_PIXELS:
        raise ValueError(
            f"it has {image.width} x {image.height} pixels, and {MAX_PIXELS:,} are allowed; make it smaller, or set "
            "decode= to a function of your own"
        )
    return image


def turn_upright(image: Image) -> Image:
    """Return an image as its EXIF orientation says; one without is not copied, as by Pillow's `exif_transpose`."""
    from PIL import ImageOps

    return ImageOps.exif_transpose(image) if image.getexif().get(_ORIENTATION, 1) != 1 else image


def to_8_bits(image: Image, mode: str | None = None) -> Image:
    """Return an image of 8 bits a channel, in a mode if one is given.

    One that has it is not copied, as Pillow's `convert` would.

    Raises:
        ValueError: Its pixels are floats or 32-bit integers, whose range is not known.
    """
    from PIL.Image import fromarray

    if image.mode in ("F", "I"):
        raise ValueError(
            f"its pixels are {'floats' if image.mode == 'F' else '32-bit integers'}, whose range is not known; set "
            "decode= to a function of your own that scales them"
        )
    if image.mode.startswith("I;16"):
        image = fromarray((np.asarray(image) >> 8).astype(np.uint8))
    return image if mode in (None, image.mode) else image.convert(mode)


def _check(crop: CenterCrop | RandomResizedCrop, size: int, mode: str) -> None:
    name = type(crop).__name__
    if size < 1:
        raise TrainyardError(f"{name}(size={size}): write the pixels of a side, one or more.")
    if mode not in ("RGB", "L"):
        raise TrainyardError(f'{name}(mode={mode!r}): write "RGB", or "L" for gray.')


def _open_upright(data: bytes) -> tuple[Image, int, int]:
    """Return an image, and its width and height when it is upright; only a JPEG is not decoded yet."""
    image = open_image(data)
    if image.format not in JPEG:  # Pillow turns some of these by itself, when they are opened or decoded
        image = turn_upright(image)
        return image, *image.size
    is_turned = image.getexif().get(_ORIENTATION) in _TURNED
    return (image, image.height, image.width) if is_turned else (image, image.width, image.height)


def _crop(image: Image, width: int, height: int, box: Box, size: int, mode: Mode) -> Image:
    """Decode a part of an image, which has a width and height when it is upright, resized to size x size.

    A JPEG is decoded at a smaller scale that is at least twice as large as the result, as Pillow's thumbnails are.
    """
    from PIL import Image

    if image.format in JPEG:
        times = int(min(box[2] - box[0], box[3] - box[1]) // (2 * size))
        if times >= 2:
            image.draft(None, (math.ceil(image.width / times), math.ceil(image.height / times)))
        image = turn_upright(image)
    image = to_8_bits(image, mode)
    x, y = image.width / width, image.height / height
    scaled = (box[0] * x, box[1] * y, min(box[2] * x, image.width), min(box[3] * y, image.height))
    return image.resize((size, size), Image.Resampling.BILINEAR, box=scaled)


def _to_array(image: Image, mode: Mode) -> Pixels:
    pixels = np.asarray(to_8_bits(image, mode))
    return pixels.transpose(2, 0, 1) if mode == "RGB" else pixels[None]
