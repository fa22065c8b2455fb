"""Send the statistics of a task to the driver: in the task's message if they are small, else in a file.

The driver gets the messages of all tasks at once, but reads one file after the other: with 10,000 tasks and tensor
columns, the messages alone would take gigabytes.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainyard import storage
from trainyard.etl.datasource.statistics import ColumnStatistics, Moments

MAX_MESSAGE_BYTES = 16 << 10
SplitStatistics = dict[str, dict[str, ColumnStatistics]]
"""Statistics by split and column."""

_MOMENTS = ("mean", "m2", "min", "max")
_VALUE_BYTES = 64


def save_if_large(uri: str, statistics: SplitStatistics) -> bool:
    """Write statistics to `uri` if they are too large for a message, and return whether they were written."""
    columns = [column for split in statistics.values() for column in split.values()]
    if sum(map(_estimate_bytes, columns)) <= MAX_MESSAGE_BYTES or not all(map(_is_plain, columns)):
        return False
    entries: list[Any] = []
    arrays: dict[str, Any] = {}
    for split, by_column in statistics.items():
        for name, column in by_column.items():
            if column.moments:
                arrays[f"moments{len(entries)}"] = np.stack([getattr(column.moments, key) for key in _MOMENTS])
            values = list(column.values.items()) if column.values is not None else None
            count = column.moments.count if column.moments else None
            entries.append([split, name, column.rows, column.nulls, count, values])
    file = io.BytesIO()
    np.savez(file, entries=np.frombuffer(json.dumps(entries).encode(), np.uint8), **arrays)
    storage.replace(uri, file.getvalue())
    return True


def load(uri: str) -> SplitStatistics:
    """Return the statistics that `save_if_large` wrote."""
    statistics: SplitStatistics = {}
    with np.load(io.BytesIO(storage.read(uri)), allow_pickle=False) as file:
        for number, entry in enumerate(json.loads(file["entries"].tobytes())):
            split, name, rows, nulls, count, pairs = entry
            moments = None if count is None else Moments(count, *file[f"moments{number}"])
            values = None if pairs is None else dict(pairs)
            statistics.setdefault(split, {})[name] = ColumnStatistics(moments, rows, nulls, values)
    return statistics


def merge(one: Mapping[str, ColumnStatistics], other: Mapping[str, ColumnStatistics]) -> dict[str, ColumnStatistics]:
    """Return the statistics by column of the rows of both."""
    return {column: statistics.merge(other[column]) for column, statistics in one.items()}


def _estimate_bytes(column: ColumnStatistics) -> int:
    entries = len(column.moments.mean) if column.moments else 0
    return entries * len(_MOMENTS) * 8 + len(column.values or ()) * _VALUE_BYTES


def _is_plain(column: ColumnStatistics) -> bool:
    """Return whether JSON has the types of all distinct values."""
    return all(isinstance(value, bool | int | float | str) for value in column.values or ())
