"""Keep the rows of one query in one batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from trainyard.etl.metrics.family import Integers


def whole_queries(parts: Iterable[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """The rows of `parts`, which are sorted by `column`, cut so that rows of one value are in one batch."""
    held: list[pa.RecordBatch] = []
    for part in parts:
        rows = pa.concat_batches([*held, part])
        last = int(np.flatnonzero(np.diff(value_codes(rows, column), prepend=-1))[-1]) if rows.num_rows else 0
        if last:
            yield rows.slice(0, last)
        held = [rows.slice(last)]
    yield from held


def value_codes(part: pa.RecordBatch, column: str) -> Integers:
    """Numbers that stand for the values of a column, in the order in which they come."""
    return part.column(column).dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]
