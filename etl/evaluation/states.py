"""The state that evaluation tasks return: a table of sums, and the examples with the highest loss.

A state is a record batch of the `STATE_SCHEMA`. Rows with a null `example` are sums; all other columns of an example's
row are null.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from trainyard.etl.datasource.record_batches import concat_batches
from trainyard.etl.metrics.sums import SCHEMA as SUMS_SCHEMA
from trainyard.etl.metrics.sums import merge_sums, to_table

STATE_SCHEMA = pa.schema([*SUMS_SCHEMA, pa.field("example", pa.string())])


def build_state(sums: pa.RecordBatch, examples: Sequence[str]) -> pa.RecordBatch:
    """Return the state of a table of sums, and of examples as JSON."""
    sum_columns = [*sums.columns, pa.nulls(sums.num_rows, pa.string())]
    example_columns = [pa.nulls(len(examples), field.type) for field in SUMS_SCHEMA]
    example_columns.append(pa.array(examples, pa.string()))
    parts = [pa.RecordBatch.from_arrays(columns, schema=STATE_SCHEMA) for columns in (sum_columns, example_columns)]
    return concat_batches(parts)


def merge_states(states: Iterable[pa.RecordBatch], examples: int) -> Iterator[pa.RecordBatch]:
    """Yield one state with the sums of all, and so many of their examples with the highest loss."""
    worst: list[str] = []

    def read_all() -> Iterator[pa.RecordBatch]:
        nonlocal worst
        for state in states:
            worst = heapq.nlargest(examples, [*worst, *read_examples(state)], key=lambda text: json.loads(text)["loss"])
            yield read_sums(state)

    sums = to_table(merge_sums(read_all()))
    yield build_state(sums, worst)


def read_sums(state: pa.RecordBatch) -> pa.RecordBatch:
    """Return the table of sums in a state."""
    return state.filter(pc.is_null(state.column("example"))).select(SUMS_SCHEMA.names)


def read_examples(state: pa.RecordBatch) -> list[str]:
    """Return the examples in a state, as JSON."""
    return [example for example in state.column("example").to_pylist() if example is not None]
