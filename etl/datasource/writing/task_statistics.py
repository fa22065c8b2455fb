"""Send the statistics of a task to the driver: in the task's message if they are small, else in a file.

The driver gets the messages of all tasks at once, but reads one file after the other: with 10,000 tasks and tensor
columns, the messages alone would take gigabytes. The file is one row of Arrow, which has a type for every value that a
dataset stores: a struct of columns for each split. The message has its digest, because others may be allowed to write
to the dataset's directory.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.writing.statistics import ColumnStatistics, Moments
from trainyard.files import storage

MAX_MESSAGE_BYTES = 16 << 10
SplitStatistics = dict[str, dict[str, ColumnStatistics]]
"""Statistics by split and column."""

_MOMENTS = ("mean", "m2", "min", "max")
_VALUE_BYTES = 64


def save_if_large(uri: str, statistics: SplitStatistics) -> str:
    """Write statistics to `uri` if they are too large for a message; return the sha256 of the file, "" without one."""
    if sum(_estimate_bytes(column) for split in statistics.values() for column in split.values()) <= MAX_MESSAGE_BYTES:
        return ""
    # Of a dictionary, pyarrow before 19 sorts the names.
    table = pa.table(
        {
            split: pa.StructArray.from_arrays([pa.array([_to_struct(of)]) for of in columns.values()], list(columns))
            for split, columns in statistics.items()
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    content = sink.getvalue().to_pybytes()
    storage.replace(uri, content)
    return hashlib.sha256(content).hexdigest()


def load(uri: str, sha256: str) -> SplitStatistics:
    """Return the statistics that `save_if_large` wrote.

    Raises:
        TrainyardError: The file has another digest.
    """
    content = storage.read(uri)
    if hashlib.sha256(content).hexdigest() != sha256:
        raise TrainyardError(f"{uri} is not what the task wrote: it was altered. Export the dataset again.")
    splits = pa.ipc.open_file(content).get_batch(0)
    return {split: {name: _from_struct(of) for name, of in splits[split][0].items()} for split in splits.schema.names}


def merge(one: Mapping[str, ColumnStatistics], other: Mapping[str, ColumnStatistics]) -> dict[str, ColumnStatistics]:
    """Return the statistics by column of the rows of both."""
    return {column: statistics.merge(other[column]) for column, statistics in one.items()}


def _estimate_bytes(column: ColumnStatistics) -> int:
    entries = len(column.moments.mean) if column.moments else 0
    return entries * len(_MOMENTS) * 8 + len(column.values or ()) * _VALUE_BYTES


def _to_struct(column: ColumnStatistics) -> dict[str, Any]:
    values = None if column.values is None else {"value": list(column.values), "rows": list(column.values.values())}
    return vars(column) | {"moments": column.moments and vars(column.moments), "values": values}


def _from_struct(column: pa.StructScalar) -> ColumnStatistics:
    moments, values = None, column["values"].as_py()
    if column["moments"].is_valid:
        arrays = (column["moments"][name].values.to_numpy() for name in _MOMENTS)
        moments = Moments(column["moments"]["count"].as_py(), *arrays)
    counts = None if values is None else dict(zip(values["value"], values["rows"], strict=True))
    return ColumnStatistics(moments, column["rows"].as_py(), column["nulls"].as_py(), counts)
