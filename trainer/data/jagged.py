"""Rows that differ in length: in memory, and as tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.generic]
Integers = NDArray[np.int64]
Sequences = Literal["padded", "nested"]


@dataclass(frozen=True, eq=False)
class Jagged:
    """Row i is values[starts[i] : starts[i] + lengths[i]], of shape (lengths[i], *shape), as in Arrow's list view.

    Rows are chosen, and repeated, without a copy of their values.
    """

    values: Array
    starts: Integers
    lengths: Integers

    @staticmethod
    def of(rows: Sequence[Array]) -> Jagged:
        """One or more arrays (length, *shape)."""
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        return Jagged(np.concatenate(rows), np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: slice | Integers) -> Jagged:
        return Jagged(self.values, self.starts[rows], self.lengths[rows])

    def packed(self) -> Array:
        """The values of the rows, end to end."""
        return self.values.take(spans(self.starts, self.lengths), 0)


def joined(parts: Sequence[Jagged]) -> Jagged:
    """The rows of all parts, with a copy of their values; the rows of a part lie in its order."""
    spanned = [(int(part.starts[0]), int(part.starts[-1] + part.lengths[-1])) for part in parts]
    moved = np.cumsum([0, *(end - begin for begin, end in spanned[:-1])])
    starts = [part.starts - begin + to for part, (begin, _), to in zip(parts, spanned, moved, strict=True)]
    values = [part.values[begin:end] for part, (begin, end) in zip(parts, spanned, strict=True)]
    return Jagged(np.concatenate(values), np.concatenate(starts), np.concatenate([part.lengths for part in parts]))


def spans(starts: Integers, lengths: Integers) -> Integers:
    """The numbers from `starts[i]` on, `lengths[i]` of them, for each i, end to end."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


def mask(name: str) -> str:
    """The column of a batch that says which elements of the padded column `name` are its rows' own."""
    return f"{name}_mask"


def tensors(name: str, rows: Jagged, sequences: Sequences) -> dict[str, Tensor]:
    """The rows as a batch holds them.

    "padded": `name` (rows, longest, *shape), with zeros where a row is shorter, and its mask (rows, longest), true
    where it is not. "nested": `name` alone, a tensor of torch's jagged layout.
    """
    values = rows.packed()
    if sequences == "nested":
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(rows.lengths)]))
        return {name: torch.nested.nested_tensor_from_jagged(torch.from_numpy(values), offsets)}
    own = np.arange(rows.lengths.max(initial=0)) < rows.lengths[:, None]
    padded = np.zeros((*own.shape, *values.shape[1:]), values.dtype)
    padded[own] = values  # four times as fast as torch's
    return {name: torch.from_numpy(padded), mask(name): torch.from_numpy(own)}


def part(column: Tensor, begin: int, end: int) -> Tensor:
    """Rows `begin` to `end` of a batch's column: what slicing does, which nested tensors know nothing of."""
    if not column.is_nested:
        return column[begin:end]
    offsets = column.offsets()[begin : end + 1]  # type: ignore[attr-defined]
    return torch.nested.nested_tensor_from_jagged(column.values()[offsets[0] : offsets[-1]], offsets - offsets[0])
