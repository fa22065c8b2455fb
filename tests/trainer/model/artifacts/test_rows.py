"""The batch that a model takes, of rows that several models share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from trainyard.schemas.datasets.manifest import Column
from trainyard.trainer.data.reading.decoding import Decode
from trainyard.trainer.model.artifacts.rows import DecodedRows, build_batch
from trainyard.trainer.model.recipe import Recipe

INPUTS = [Column(name="image", kind="tensor", type="uint8", shape=(4,))]
ROWS = {"image": [bytes([number] * 4) for number in range(6)]}


def test_rows_that_models_share_are_decoded_once_by_each_decoder() -> None:
    decoded_by_one: list[bytes] = []

    def decode(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        decoded_by_one.append(data)
        return np.frombuffer(data, np.uint8)

    one = Recipe(model=nn.Linear(4, 3), features="image", label="label", classes=3, decode={"image": decode})
    other = Recipe(
        model=nn.Linear(4, 3), features="image", label="label", classes=3,
        decode={"image": lambda data: np.frombuffer(data, np.uint8) * np.uint8(2)},
    )  # fmt: skip
    decoded: DecodedRows = {}
    first, second, third = (build_batch(recipe, INPUTS, ROWS, decoded)["image"] for recipe in (one, one, other))
    assert sorted(set(decoded_by_one)) == sorted(ROWS["image"])
    assert len(decoded_by_one) == len(ROWS["image"]) + 1, "one row shows the shape"
    first.zero_()  # as a network may do with its input
    assert second[:, 0].tolist() == list(range(6)) and torch.equal(third, second * 2)
    build_batch(one, INPUTS, ROWS)
    assert len(decoded_by_one) == 2 * (len(ROWS["image"]) + 1), "rows that are not shared are decoded again"


@dataclass
class Scale:
    """A decoder that has no hash, because it can be changed."""

    by: int

    def __call__(self, data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return np.frombuffer(data, np.uint8) * np.uint8(self.by)


@dataclass(frozen=True)
class ScaleEach:
    """A decoder whose hash fails, because an attribute has none."""

    by: list[int]

    def __call__(self, data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        return np.frombuffer(data, np.uint8) * np.array(self.by, np.uint8)


@pytest.mark.parametrize("decode", [Scale(2), ScaleEach([2, 2, 2, 2])])
def test_decoders_without_a_hash_decode_for_each_model(decode: Decode) -> None:
    recipe = Recipe(model=nn.Linear(4, 3), features="image", label="label", classes=3, decode={"image": decode})
    decoded: DecodedRows = {}
    for _ in range(2):
        assert build_batch(recipe, INPUTS, ROWS, decoded)["image"][:, 0].tolist() == list(range(0, 12, 2))
