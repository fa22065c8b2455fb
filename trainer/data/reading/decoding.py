"""Binary columns: rows that are stored compressed and decoded to tensors while they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column
from trainyard.trainer.data.reading.jagged import Array, Integers, Jagged

MAX_THREADS = 16
_CHUNKS_PER_THREAD = 4
"""A batch is decoded in this many pieces for each thread, so that threads finish at about the same time."""

Decode = Callable[[bytes], Any]
"""Return an array or tensor from the bytes of one row, of the same shape and type for each row."""

Change = Callable[[Any, np.random.Generator], Any]
"""Return such an array or tensor with a random change."""


@runtime_checkable
class RandomDecode(Protocol):
    """A decoder that makes a random change while it decodes, such as `RandomResizedCrop`."""

    def decode(self, data: bytes, random: np.random.Generator, /) -> Any:
        """Return an array or tensor from the bytes of one row, of the same shape and type for each row."""


Augment = Change | RandomDecode
"""What changes rows at random in training: a function of the decoded row, or a decoder in place of the column's."""


@dataclass(frozen=True)
class PendingRows:
    """Rows that threads are decoding."""

    out: Array
    chunks: list[Future[None]]

    def result(self) -> Tensor:
        """Wait for all rows and return them."""
        for chunk in self.chunks:
            chunk.result()
        return torch.from_numpy(self.out)


class Decoder:
    """Decode the rows of one column to a tensor (rows, *shape).

    The first row determines shape and type.

    Args:
        name: The name of the column.
        decode: The decoder of a row.
        augment: Changes rows at random. Its generator depends on the seed, the epoch and the row's number among
            the drawn rows only, whichever worker reads the row; a row that is drawn twice is changed in two ways.
        seed: The seed of the training.
        first: The first row.
        describe_row: Returns the position of a row in words, for errors.

    Raises:
        TrainyardError: A row cannot be decoded, or differs in shape or type from the first.
    """

    def __init__(
        self,
        name: str,
        decode: Decode,
        augment: Augment | None,
        seed: int,
        first: Jagged,
        describe_row: Callable[[int], str],
    ) -> None:
        self._name, self._decode, self._augment, self._seed = name, decode, augment, seed
        self._describe_row = describe_row
        row = self._decode_row(first, 0, 0, 0, 0)
        self._shape, self._dtype = row.shape, row.dtype

    @property
    def column(self) -> Column:
        """The column as it is in a batch."""
        kind = str(self._dtype)
        arrow = {"float32": "float", "float64": "double"}.get(kind, kind)
        return Column(name=self._name, kind="tensor", type=arrow, shape=self._shape)

    def submit(self, rows: Jagged, positions: Integers, draws: Integers, epoch: int) -> PendingRows:
        """Start decoding `rows` in threads.

        Args:
            rows: The rows.
            positions: Where they are in the dataset.
            draws: Their numbers among the rows that an epoch draws, of which no two are the same.
            epoch: The number of the epoch.
        """
        out = np.empty((len(rows), *self._shape), self._dtype)
        size = max(1, len(rows) // (_CHUNKS_PER_THREAD * _thread_count()))
        decode = partial(self._decode_chunk, out, rows, positions, draws, epoch)
        return PendingRows(out, [_get_pool().submit(decode, n, n + size) for n in range(0, len(rows), size)])

    def _decode_chunk(
        self, out: Array, rows: Jagged, positions: Integers, draws: Integers, epoch: int, begin: int, end: int
    ) -> None:
        for number in range(begin, min(end, len(rows))):
            row = self._decode_row(rows, number, int(positions[number]), int(draws[number]), epoch)
            if row.shape != self._shape or row.dtype != self._dtype:
                raise TrainyardError(
                    f"column {self._name!r}: {self._describe_row(int(positions[number]))} is decoded to {row.dtype} "
                    f"{list(row.shape)}, but the first row to {self._dtype} {list(self._shape)}. Return the same shape "
                    "and type for all rows from decode= and augment=."
                )
            out[number] = row

    def _decode_row(self, rows: Jagged, number: int, position: int, draw: int, epoch: int) -> Array:
        start = rows.starts[number]
        data = rows.values[start : start + rows.lengths[number]].tobytes()
        try:
            return np.asarray(self._read(data, draw, epoch))
        except Exception as error:
            raise _decoding_error(self._name, self._describe_row(position), data, error) from error

    def _read(self, data: bytes, draw: int, epoch: int) -> Any:
        if self._augment is None:
            return self._decode(data)
        random = np.random.default_rng([self._seed % 2**64, epoch, draw])
        if isinstance(self._augment, RandomDecode):
            return self._augment.decode(data, random)
        return self._augment(self._decode(data), random)


def decode_rows(name: str, decode: Decode, rows: Jagged | Sequence[Any]) -> Tensor:
    """Return the rows of a column as one tensor; errors name a row by its number."""
    if not isinstance(rows, Jagged):
        rows = Jagged.from_rows([np.frombuffer(row, np.uint8) for row in rows])
    decoder = Decoder(name, decode, None, 0, rows[:1], "row {}".format)
    numbers = np.arange(len(rows))
    return decoder.submit(rows, numbers, numbers, 0).result()


def check_decoders(columns: Sequence[Column], decode: Mapping[str, Decode], augment: Mapping[str, Augment]) -> None:
    """Check that each binary column has a decoder, and that decoders are for binary columns only.

    Raises:
        TrainyardError: A column has no decoder, or a decoder no binary column.
    """
    binary = {column.name for column in columns if column.type == "binary"}
    for name in sorted(binary - decode.keys()):
        raise TrainyardError(
            f"column {name!r} holds bytes, and a batch holds tensors. Set a decoder with "
            f"decode={{{name!r}: function}}; trainyard.trainer.decode_rgb decodes images."
        )
    for name in decode.keys() & {column.name for column in columns} - binary:
        raise TrainyardError(f"decode= names the column {name!r}, which does not hold bytes; remove it.")
    for name in augment.keys() - decode.keys():
        raise TrainyardError(f"augment= names the column {name!r}, which has no decoder; use transform= instead.")


def _decoding_error(name: str, row: str, data: bytes, error: Exception) -> TrainyardError:
    content = f"its {len(data):,} bytes begin with {data[:8]!r}" if data else "it is empty, or null"
    return TrainyardError(
        f"column {name!r}: {row} cannot be decoded ({type(error).__name__}: {error}); {content}. "
        "Drop such rows in prepare.py."
    )


@cache
def _get_pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_thread_count(), thread_name_prefix="decode")


os.register_at_fork(after_in_child=_get_pool.cache_clear)  # a forked process has no threads of its parent


def _thread_count() -> int:
    return min(MAX_THREADS, torch.get_num_threads())
