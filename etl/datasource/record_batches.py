"""Concatenate record batches; pyarrow has a function for it since version 19."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def concat_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of one or more record batches of one schema as one.

    Raises:
        ValueError: A column has more than 2 GiB of text or binary values.
    """
    joined = pa.Table.from_batches(batches).combine_chunks().to_batches()
    if len(joined) > 1:
        raise ValueError(f"{sum(batch.num_rows for batch in batches)} rows do not fit into one record batch")
    return joined[0] if joined else batches[0]
