"""Binary columns: rows that are kept compressed, and become tensors while they are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.schemas.manifest import Column
from trainyard.trainer.data.jagged import Array, Integers, Jagged

MOST_THREADS = 16
_CHUNKS = 4
"""Pieces of a share for each thread, so that they end at about one time."""

Decode = Callable[[bytes], Any]
"""The bytes of one row to an array or tensor, of the same shape and type for each row."""

Augment = Callable[[Any, np.random.Generator], Any]
"""Such an array or tensor, changed at random."""


@dataclass(frozen=True)
class Pending:
    """Rows that threads are at work on."""

    out: Array
    parts: list[Future[None]]

    def result(self) -> Tensor:
        for part in self.parts:
            part.result()
        return torch.from_numpy(self.out)


class Decoder:
    """Turns rows of one column into a tensor (rows, *shape), as `decode` does the first of them.

    `augment` gets a generator that depends on the `seed`, the epoch and the row's place alone. `place` tells where a
    row lies. Raises TrainyardError for a row that cannot be decoded, or becomes another shape or type than the first.
    """

    def __init__(
        self,
        name: str,
        decode: Decode,
        augment: Augment | None,
        seed: int,
        first: Jagged,
        place: Callable[[int], str],
    ) -> None:
        self._name, self._decode, self._augment, self._seed, self._place = name, decode, augment, seed, place
        row = self._row(first, 0, 0, 0)
        self._shape, self._dtype = row.shape, row.dtype

    @property
    def column(self) -> Column:
        """The column as a batch holds it."""
        kind = str(self._dtype)
        arrow = {"float32": "float", "float64": "double"}.get(kind, kind)
        return Column(name=self._name, kind="tensor", type=arrow, shape=self._shape)

    def begin(self, rows: Jagged, places: Integers, epoch: int) -> Pending:
        """Have threads decode the rows, which lie at `places`."""
        out = np.empty((len(rows), *self._shape), self._dtype)
        size = max(1, len(rows) // (_CHUNKS * _threads()))
        work = partial(self._into, out, rows, places, epoch)
        return Pending(out, [_pool().submit(work, n, n + size) for n in range(0, len(rows), size)])

    def _into(self, out: Array, rows: Jagged, places: Integers, epoch: int, begin: int, end: int) -> None:
        for number in range(begin, min(end, len(rows))):
            row = self._row(rows, number, int(places[number]), epoch)
            if row.shape != self._shape or row.dtype != self._dtype:
                raise TrainyardError(
                    f"column {self._name!r}: {self._place(int(places[number]))} is decoded to {row.dtype} "
                    f"{list(row.shape)}, and the first row to {self._dtype} {list(self._shape)}. Let decode= (and "
                    "augment=) give all rows one shape and type."
                )
            out[number] = row

    def _row(self, rows: Jagged, number: int, place: int, epoch: int) -> Array:
        start = rows.starts[number]
        data = rows.values[start : start + rows.lengths[number]].tobytes()
        try:
            row = self._decode(data)
            if self._augment:
                row = self._augment(row, np.random.default_rng([self._seed, epoch, place]))
            return np.asarray(row)
        except Exception as error:
            raise _undecodable(self._name, self._place(place), data, error) from error


def decoded(name: str, decode: Decode, rows: Jagged | Sequence[Any]) -> Tensor:
    """The rows of a column as one tensor; those that are not from a dataset are named by their number."""
    if not isinstance(rows, Jagged):
        rows = Jagged.of([np.frombuffer(row, np.uint8) for row in rows])
    decoder = Decoder(name, decode, None, 0, rows[:1], "row {}".format)
    return decoder.begin(rows, np.arange(len(rows)), 0).result()


def check(columns: Sequence[Column], decode: Mapping[str, Decode], augment: Mapping[str, Augment]) -> None:
    """Raises TrainyardError for a binary column that nothing decodes, and for a decoder of what is none."""
    binary = {column.name for column in columns if column.type == "binary"}
    for name in sorted(binary - decode.keys()):
        raise TrainyardError(
            f"column {name!r} holds bytes, and a batch holds tensors. Say what they become with "
            f"decode={{{name!r}: function}}, where trainer.images.rgb reads images."
        )
    for name in decode.keys() & {column.name for column in columns} - binary:
        raise TrainyardError(f"decode= names the column {name!r}, which does not hold bytes; leave it out.")
    for name in augment.keys() - decode.keys():
        raise TrainyardError(f"augment= names the column {name!r}, which decode= does not; use transform= for it.")


def _undecodable(name: str, place: str, data: bytes, error: Exception) -> TrainyardError:
    what = f"its {len(data):,} bytes begin with {data[:8]!r}" if data else "it is empty, or null"
    return TrainyardError(
        f"column {name!r}: {place} cannot be decoded ({type(error).__name__}: {error}); {what}. "
        "Drop such rows in prepare.py."
    )


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_threads(), thread_name_prefix="decode")


os.register_at_fork(after_in_child=_pool.cache_clear)  # a process that is forked has none of its parent's threads


def _threads() -> int:
    return min(MOST_THREADS, len(os.sched_getaffinity(0)))
