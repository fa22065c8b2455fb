"""Keep the rows of one query in one batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from trainyard.etl.datasource.record_batches import concat_batches
from trainyard.etl.metrics.family import Integers


def regroup_batches(batches: Iterable[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of `batches`, which are sorted by `column`, so that rows with one value are in one batch."""
    pending: list[pa.RecordBatch] = []
    for batch in batches:
        rows = concat_batches([*pending, batch])
        last = int(np.flatnonzero(np.diff(encode_values(rows, column), prepend=-1))[-1]) if rows.num_rows else 0
        if last:
            yield rows.slice(0, last)
        pending = [rows.slice(last)]
    yield from pending


def encode_values(batch: pa.RecordBatch, column: str) -> Integers:
    """Return a number for each row (rows,) that stands for its value of `column`, in order of first occurrence."""
    return batch.column(column).dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]
