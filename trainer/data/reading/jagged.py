"""Variable-length rows: their arrays in memory, and their tensors in a batch."""

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
    """Rows of different lengths over one array of values, as in Arrow's list view.

    Row i is `values[starts[i] : starts[i] + lengths[i]]`, of shape (lengths[i], *shape). Rows are selected and repeated
    without a copy of their values.
    """

    values: Array
    starts: Integers
    lengths: Integers

    @staticmethod
    def from_rows(rows: Sequence[Array]) -> Jagged:
        """Return rows from one or more arrays of shape (length, *shape)."""
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        return Jagged(np.concatenate(rows), np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: slice | Integers) -> Jagged:
        return Jagged(self.values, self.starts[rows], self.lengths[rows])

    def pack(self) -> Array:
        """Return a copy of the values of the rows, end to end."""
        return self.values.take(build_ranges(self.starts, self.lengths), 0)


def concatenate(parts: Sequence[Jagged]) -> Jagged:
    """Return the rows of all parts, with a copy of their values. The values of each part must be in row order."""
    bounds = [(int(part.starts[0]), int(part.starts[-1] + part.lengths[-1])) for part in parts]
    offsets = np.cumsum([0, *(end - begin for begin, end in bounds[:-1])])
    starts = [part.starts - begin + offset for part, (begin, _), offset in zip(parts, bounds, offsets, strict=True)]
    values = [part.values[begin:end] for part, (begin, end) in zip(parts, bounds, strict=True)]
    return Jagged(np.concatenate(values), np.concatenate(starts), np.concatenate([part.lengths for part in parts]))


def build_ranges(starts: Integers, lengths: Integers) -> Integers:
    """Return `starts[i]`, `starts[i] + 1`, ... (`lengths[i]` numbers) for each i, end to end."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


def mask_name(name: str) -> str:
    """Return the name of the column that masks the padding of the padded column `name`."""
    return f"{name}_mask"


def to_tensors(name: str, rows: Jagged, sequences: Sequences) -> dict[str, Tensor]:
    """Return the tensors of the column `name` in a batch.

    Args:
        name: The name of the column.
        rows: Its rows.
        sequences: "padded": `name` (rows, longest, *shape), zero behind the end of each row, and its mask (rows,
            longest), true before it. "nested": `name` only, a nested tensor of torch's jagged layout.
    """
    values = rows.pack()
    if sequences == "nested":
        offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(rows.lengths)]))
        return {name: torch.nested.nested_tensor_from_jagged(torch.from_numpy(values), offsets)}
    own = np.arange(rows.lengths.max(initial=0)) < rows.lengths[:, None]
    padded = np.zeros((*own.shape, *values.shape[1:]), values.dtype)
    padded[own] = values  # four times as fast as torch's
    return {name: torch.from_numpy(padded), mask_name(name): torch.from_numpy(own)}


def slice_rows(column: Tensor, begin: int, end: int) -> Tensor:
    """Return rows `begin` to `end` of a column of a batch, which may be a nested tensor (these cannot be sliced)."""
    if not column.is_nested:
        return column[begin:end]
    offsets = column.offsets()[begin : end + 1]  # type: ignore[attr-defined]
    return torch.nested.nested_tensor_from_jagged(column.values()[offsets[0] : offsets[-1]], offsets - offsets[0])
