"""Find rows that are expected to be unique and are not. Spark counts them, and only examples are collected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from trainyard.etl.datasource.columns import get_column, missing_column_error
from trainyard.etl.datasource.writing.quality import Violation, raise_errors
from trainyard.schemas.specs.source import Expectation
from trainyard.text import shorten

MAX_EXAMPLES = 5
MAX_EXAMPLE = 60
"""The characters of a value that an example shows."""
_ROWS = "__rows"


def check_unique(dataset: str, frame: DataFrame, expected: Mapping[str, Expectation]) -> tuple[str, ...]:
    """Return a warning for each key that some rows share, if its severity is `warn`.

    Each key takes a pass over its columns alone, and a shuffle of its values.

    Args:
        dataset: The URI of the dataset, for messages.
        frame: The rows.
        expected: The expectation for each column.

    Raises:
        TrainyardError: A key of severity `error` is shared, or names a missing column.
    """
    violations = []
    for column, expectation in expected.items():
        if expectation.key is None:
            continue
        key = (column, *expectation.key)
        for name in key:
            if name not in frame.columns:
                raise missing_column_error(name, "expect", frame.columns)
        if found := find_duplicates(frame, key):
            violations.append(Violation(expectation.severity, "", ", ".join(key), "unique", found))
    return raise_errors(dataset, violations)


def find_duplicates(frame: DataFrame, key: Sequence[str]) -> str:
    """Return how many values of a key several rows have, and those of the most rows; "" if there are none.

    Rows with a null in the key do not count, as in SQL. NaN is one value, as are 0.0 and -0.0. The columns have types
    that a dataset stores, whose values Spark compares.
    """
    values = frame.select(*(get_column(name).alias(f"_{number}") for number, name in enumerate(key)))
    known = values.where(reduce(and_, (F.col(name).isNotNull() for name in values.columns)))
    counts, totals = known.groupBy(*values.columns).agg(F.count(F.lit(1)).alias(_ROWS)), Observation()
    shared = counts.where(F.col(_ROWS) > 1)
    observed = shared.observe(totals, F.count(F.lit(1)).alias("values"), F.sum(_ROWS).alias("rows"))
    worst = observed.orderBy(F.col(_ROWS).desc(), *values.columns).limit(MAX_EXAMPLES).collect()
    if not worst:
        return ""
    examples = ", ".join(f"{_show(row[:-1])} ({row[_ROWS]:,} rows)" for row in worst)
    return (
        f"{totals.get['values']:,} value{'s' * (totals.get['values'] != 1)} in {totals.get['rows']:,} rows: {examples}"
    )


def _show(values: Sequence[Any]) -> str:
    texts = [shorten(repr(value) if isinstance(value, str) else str(value), MAX_EXAMPLE) for value in values]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
