"""The state that evaluation tasks return: a table of sums, and the examples with the highest loss.

A state is a record batch of the `STATE_SCHEMA`. Rows with a null `example` are sums; of an example's row all other
columns but `model` are null.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from trainyard.etl.datasource.record_batches import concat_batches
from trainyard.etl.metrics.sums import SCHEMA as SUMS_SCHEMA
from trainyard.etl.metrics.sums import merge_sums, to_table

STATE_SCHEMA = pa.schema([*SUMS_SCHEMA, pa.field("example", pa.string())])


def build_state(sums: pa.RecordBatch, examples: Mapping[int, Sequence[str]]) -> pa.RecordBatch:
    """Return the state of a table of sums, and of examples as JSON by the number of their model."""
    numbered = [(model, text) for model, texts in examples.items() for text in texts]
    by_name = {
        "model": pa.array([model for model, _ in numbered], pa.int32()),
        "example": pa.array([text for _, text in numbered], pa.string()),
    }
    example_columns = [by_name.get(field.name, pa.nulls(len(numbered), field.type)) for field in STATE_SCHEMA]
    sum_columns = [*sums.columns, pa.nulls(sums.num_rows, pa.string())]
    parts = [pa.RecordBatch.from_arrays(columns, schema=STATE_SCHEMA) for columns in (sum_columns, example_columns)]
    return concat_batches(parts)


def merge_states(states: Iterable[pa.RecordBatch], examples: int) -> Iterator[pa.RecordBatch]:
    """Yield one state with the sums of all, and of each model so many of their examples with the highest loss."""
    worst: dict[int, list[str]] = defaultdict(list)

    def read_all() -> Iterator[pa.RecordBatch]:
        for state in states:
            for model, texts in read_examples(state).items():
                worst[model] = heapq.nlargest(
                    examples, [*worst[model], *texts], key=lambda text: json.loads(text)["loss"]
                )
            yield read_sums(state)

    sums = to_table(merge_sums(read_all()))
    yield build_state(sums, worst)


def read_sums(state: pa.RecordBatch) -> pa.RecordBatch:
    """Return the table of sums in a state."""
    return state.filter(pc.is_null(state.column("example"))).select(SUMS_SCHEMA.names)


def read_examples(state: pa.RecordBatch) -> dict[int, list[str]]:
    """Return the examples in a state, as JSON by the number of their model."""
    found: dict[int, list[str]] = defaultdict(list)
    examples = state.filter(pc.is_valid(state.column("example")))
    for model, text in zip(*(examples.column(name).to_pylist() for name in ("model", "example")), strict=True):
        found[model].append(text)
    return found
