"""What a user expects of the data, held against its statistics before any of it is seen by others.

Drift is measured as the population stability index, sum (p - q) ln(p / q) over the values of a column; for numbers that
have too many values, by its closed form for two normal distributions (Jeffreys' divergence). By custom 0.1 is worth
a look, 0.25 another population.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from statistics import median

from trainyard.errors import TrainyardError
from trainyard.schemas.manifest import Split, Statistics
from trainyard.schemas.specs.source import Drift, Expectation
from trainyard.table import table

LEAST_SHARE = 1e-4
"""What a value that does not occur counts as, so that the index stays finite."""

HEAD = ["split", "column", "expected", "found"]


def refuse(dataset: str, splits: Mapping[str, Split], expected: Mapping[str, Expectation]) -> None:
    """Raises TrainyardError with a table of all that is not as expected, and for a column that is not there."""
    for column in expected:
        if not any(column in split.statistics for split in splits.values()):
            there = ", ".join(dict.fromkeys(name for split in splits.values() for name in split.statistics))
            raise TrainyardError(f"expect names the column {column!r}, which {dataset} does not have; it has {there}.")
    rows = [row for name, split in splits.items() for row in _violations(name, split, expected)]
    if rows:
        raise TrainyardError(
            f"the data for {dataset} is not as expected, and nothing of it is kept:\n{table(HEAD, rows)}\n"
            "Mend the source or prepare, or change what expect= says."
        )


def compare(dataset: str, splits: Mapping[str, Split], before: Mapping[str, Split], limits: Drift) -> tuple[str, ...]:
    """A line for each column that has drifted by `limits.warn` or more since `before`.

    Raises TrainyardError with a table when one has by `limits.fail`.
    """
    found = [
        (name, column, drift(split.statistics[column], figures))
        for name, split in splits.items() if name in before
        for column, figures in before[name].statistics.items() if column in split.statistics
    ]  # fmt: skip
    limit = math.inf if limits.fail is None else limits.fail
    rows = [[name, column, f"below {limit:g}", f"{far:.3g}"] for name, column, far in found if far >= limit]
    if rows and limits.fail is not None:
        raise TrainyardError(
            f"the data for {dataset} has drifted from what is there, and nothing of it is kept:\n"
            f"{table(HEAD, rows)}\nLook at the source; if the world has changed, raise drift={{'fail': ...}}."
        )
    return tuple(
        f"split {name}, column {column}: drifted by {far:.3g} (a warning from {limits.warn:g} on)"
        for name, column, far in found if far >= limits.warn
    )  # fmt: skip


def drift(new: Statistics, old: Statistics) -> float:
    """The population stability index of one column; for tensors the median over their entries."""
    if new.values and old.values:
        return _of_values(new.values, old.values)
    if not (new.mean and old.mean):
        return 0.0
    return median(map(_of_normals, new.mean, new.std, old.mean, old.std))


def _of_values(new: Mapping[str, int], old: Mapping[str, int]) -> float:
    of_new, of_old = sum(new.values()), sum(old.values())
    total = 0.0
    for value in {**old, **new}:
        p = max(new.get(value, 0) / of_new, LEAST_SHARE)
        q = max(old.get(value, 0) / of_old, LEAST_SHARE)
        total += (p - q) * math.log(p / q)
    return total


def _of_normals(mean: float, std: float, old_mean: float, old_std: float) -> float:
    shift, variance, old_variance = (mean - old_mean) ** 2, std * std, old_std * old_std
    if std == 0 or old_std == 0:
        return 0.0 if shift == 0 and std == old_std else math.inf
    return ((variance + shift) / old_variance + (old_variance + shift) / variance) / 2 - 1


def _violations(name: str, split: Split, expected: Mapping[str, Expectation]) -> Iterator[list[str]]:
    for column, expectation in expected.items():
        for told in _of_column(expectation, split.statistics[column]):
            yield [name, column, *told]


def _of_column(expectation: Expectation, found: Statistics) -> Iterator[tuple[str, str]]:
    if expectation.min is not None and found.min and min(found.min) < expectation.min:
        yield f"min {expectation.min:g}", f"{min(found.min):g}"
    if expectation.max is not None and found.max and max(found.max) > expectation.max:
        yield f"max {expectation.max:g}", f"{max(found.max):g}"
    if expectation.nulls is not None and found.nulls > expectation.nulls * (found.count + found.nulls):
        share = found.nulls / (found.count + found.nulls)
        yield f"nulls at most {expectation.nulls:g}", f"{share:.3g} ({found.nulls:,} of {found.count + found.nulls:,})"
    counted = expectation.values is not None or expectation.rows_per_value is not None
    if counted and found.values is None:
        yield "a few values", "more than 1,000 values, or no scalar"
        return
    values = found.values or {}
    if expectation.values is not None and (strange := [v for v in values if v not in expectation.values]):
        yield f"one of {', '.join(expectation.values)}", ", ".join(f"{v} ({values[v]:,} rows)" for v in strange[:5])
    if expectation.rows_per_value is not None:
        for value in dict.fromkeys([*(expectation.values or ()), *values]):
            if values.get(value, 0) < expectation.rows_per_value:
                yield f"{expectation.rows_per_value:,} rows of {value!r}", f"{values.get(value, 0):,}"
