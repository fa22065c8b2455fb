"""Record batches are concatenated."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest

from trainyard.etl.datasource.record_batches import concat_batches


@pytest.mark.parametrize("counts", [(0,), (3,), (0, 0), (0, 2), (2, 3, 0)])
def test_batches_become_one_with_all_rows_in_order(counts: tuple[int, ...]) -> None:
    rows = [[{"x": [number, batch], "y": None} for number in range(count)] for batch, count in enumerate(counts)]
    schema = pa.schema({"x": pa.list_(pa.int32()), "y": pa.string()})
    joined = concat_batches([pa.RecordBatch.from_pylist(part, schema=schema) for part in rows])
    assert joined.schema == schema and joined.to_pylist() == list(chain(*rows))
