"""Check the statistics of new data against expectations and against the current version, before it is committed.

Drift is measured as the population stability index, sum (p - q) ln(p / q) over the values of a column. For numbers
whose values seldom repeat it is computed in closed form for two normal distributions (Jeffreys divergence). By
convention, 0.1 is a moderate shift and 0.25 a different population.

The index of two samples of one population is not 0, but about a chi-squared number times 1 / n + 1 / m for their n and
m rows, with as many degrees of freedom as parameters are estimated (B. Yurdakul and J. Naranjo: "Statistical properties
of the population stability index", Journal of Risk Model Validation, 2020). Its mean is subtracted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from statistics import median
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column, Partition, Provenance, Split, Statistics
from trainyard.schemas.specs.source import Drift, Expectation, RowCount, Severity
from trainyard.text import table

MIN_SHARE = 1e-4
"""The share that a value which does not occur counts as, or half a row if that is more, but at most its share of the
other rows: it keeps the index finite."""

MIN_ROWS = 5
"""The mean number of rows of a value from which on shares are compared, as in Pearson's chi-squared test. Those of
values that seldom repeat differ between any two samples. As many rows have to differ from a constant in the mean until
a sample without one is a change: it has a probability below 1%."""

_FLOATS: dict[str, Callable[[Any], Any]] = {"halffloat": np.float16, "float": np.float32, "double": np.float64}
_Value: TypeAlias = float | str
_HEADER = ["split", "column", "expected", "found"]
_MAX_VALUES_SHOWN = 5
_TEMPORAL = ("date", "timestamp")


class Violation(NamedTuple):
    """What is not as it is expected: of a split and a column, each "" if it is of all."""

    severity: Severity
    split: str
    column: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Return it as a sentence."""
        places = [f"{kind} {name}" for kind, name in (("split", self.split), ("column", self.column)) if name]
        return f"{', '.join(places) or 'all rows'}: expected {self.expected}, found {self.found}"


def check_expectations(
    dataset: str,
    columns: Iterable[Column],
    splits: Mapping[str, Split],
    expected: Mapping[str, Expectation],
    rows: RowCount | None = None,
) -> tuple[str, ...]:
    """Check the statistics of each split against what the user expects of columns; return a warning for each violation.

    Numbers are compared in the type of their column: a float32 of 0.1 is the 0.1 that is expected.

    Args:
        dataset: The URI of the dataset, for messages.
        columns: The columns of the new data.
        splits: The new data.
        expected: The expectation for each column.
        rows: How many rows all splits together are expected to have.

    Raises:
        TrainyardError: An expectation names a missing column, or is violated and its severity is `error`.
    """
    for column in expected:
        if not any(column in split.statistics for split in splits.values()):
            names = ", ".join(dict.fromkeys(name for split in splits.values() for name in split.statistics))
            raise TrainyardError(f"expect names the column {column!r}, which {dataset} does not have; it has {names}.")
    types = {column.name: column.type for column in columns}
    violations = [
        one for name, split in splits.items() for one in find_violations(name, split.statistics, expected, types)
    ]
    if rows:
        violations += _check_rows(rows, sum(split.rows for split in splits.values()))
    return raise_errors(dataset, violations)


def raise_errors(dataset: str, violations: Sequence[Violation]) -> tuple[str, ...]:
    """Return a warning for each violation whose severity is `warn`.

    Raises:
        TrainyardError: There are others; the message has a table of all of them.
    """
    errors = [violation for violation in violations if violation.severity == "error"]
    if errors:
        rows = [[split or "all", column, expected, found] for _, split, column, expected, found in errors]
        raise TrainyardError(
            f"the data for {dataset} does not meet expectations: {_summarize(errors)}; no version was committed.\n"
            f"{table(_HEADER, rows)}\nCorrect the source or prepare, or change expect=."
        )
    return tuple(map(str, violations))


def _summarize(errors: Sequence[Violation]) -> str:
    """Return the first violation, and how many more there are, for places that show one line of an error."""
    return f"{errors[0]}" + (f" (and {len(errors) - 1} more)" if len(errors) > 1 else "")


def _check_rows(expected: RowCount, found: int) -> Iterator[Violation]:
    if expected.min is not None and found < expected.min:
        yield Violation(expected.severity, "", "", f"min {expected.min:,} rows", f"{found:,}")
    if expected.max is not None and found > expected.max:
        yield Violation(expected.severity, "", "", f"max {expected.max:,} rows", f"{found:,}")


def check_drift(
    dataset: str,
    columns: Iterable[Column],
    splits: Mapping[str, Split],
    previous: Mapping[str, Mapping[str, Statistics]],
    limits: Drift,
) -> tuple[str, ...]:
    """Return a warning for each column that drifted by `limits.warn` or more since `previous`.

    Args:
        dataset: The URI of the dataset, for messages.
        columns: The columns of the new data.
        splits: The new data.
        previous: The statistics to compare with, by split and column.
        limits: The index from which on to warn and to fail, and the columns.

    Raises:
        TrainyardError: `limits` names a missing column, or a column drifted by `limits.fail` or more; the message has a
            table of all such columns.
    """
    compared = _choose_columns(dataset, columns, limits.columns)
    drifts = [
        (name, column, measure_drift(split.statistics[column], statistics))
        for name, split in splits.items() if name in previous
        for column, statistics in previous[name].items() if column in split.statistics and column in compared
    ]  # fmt: skip
    limit = math.inf if limits.fail is None else limits.fail
    errors = [
        Violation("error", name, column, f"below {limit:g}", f"{drift:.3g}")
        for name, column, drift in drifts if drift >= limit
    ]  # fmt: skip
    if errors:
        rows = [[*error[1:]] for error in errors]
        raise TrainyardError(
            f"the data for {dataset} drifted from its current version: {_summarize(errors)}; no version was "
            f"committed.\n{table(_HEADER, rows)}\nCheck the source; if the change is intended, raise "
            "drift={'fail': ...}."
        )
    return tuple(
        f"split {name}, column {column}: drifted by {drift:.3g} (warning from {limits.warn:g} on)"
        for name, column, drift in drifts if drift >= limits.warn
    )  # fmt: skip


def _choose_columns(dataset: str, columns: Iterable[Column], named: Sequence[str]) -> set[str]:
    """Return the columns to compare: those that are named, or else all but dates and times, which move on."""
    types = {column.name: column.type for column in columns}
    if missing := [name for name in named if name not in types]:
        raise TrainyardError(
            f"drift names the column {missing[0]!r}, which {dataset} does not have; it has {', '.join(types)}."
        )
    return set(named) or {name for name, type in types.items() if not type.startswith(_TEMPORAL)}


def compare_models(new: Provenance, others: Mapping[str, Partition]) -> tuple[str, ...]:
    """Return a warning if other partitions of the dataset have features of other weights than the new one."""
    models = {name: other.provenance.model for name, other in others.items() if other.provenance.model}
    differ = [name for name, model in models.items() if new.model and model != new.model]
    if not differ:
        return ()
    more = f" (and {len(differ) - 1} more)" if len(differ) > 1 else ""
    return (
        f"partition {differ[0]!r}{more} has features of the weights {models[differ[0]][:16]}, and this one of "
        f"{new.model[:16]}; features of different weights do not compare, so write all partitions with one model",
    )


def measure_drift(new: Statistics, old: Statistics) -> float:
    """Return the population stability index of one column: of its values, or of which are null if that is larger.

    For tensors it is the median over their entries. What samples of one population differ by is subtracted.
    """
    nulls = _compare_counts(*({"null": one.nulls, "": one.count} for one in (new, old)))
    if new.values and old.values and _repeat(new.values) and _repeat(old.values):
        return max(nulls, _compare_counts(new.values, old.values))
    if not (new.mean and old.mean):
        return nulls
    return max(nulls, median(map(_compare_numbers, _split_entries(new), _split_entries(old))))


def _repeat(values: Mapping[str, int]) -> bool:
    return sum(values.values()) >= MIN_ROWS * len(values)


def _compare_counts(new: Mapping[str, int], old: Mapping[str, int]) -> float:
    new_total, old_total = sum(new.values()), sum(old.values())
    if not (new_total and old_total):
        return 0.0
    values = dict.fromkeys(value for counts in (old, new) for value, count in counts.items() if count)
    index = 0.0
    for value in values:
        p, q = new.get(value, 0) / new_total, old.get(value, 0) / old_total
        p, q = p or min(q, _bound_share(new_total)), q or min(p, _bound_share(old_total))
        index += (p - q) * math.log(p / q)
    return _subtract_noise(index, len(values) - 1, new_total, old_total)


def _bound_share(rows: int) -> float:
    """Return the largest share that a value counts as which does not occur in so many rows."""
    return max(0.5 / rows, MIN_SHARE)


def _subtract_noise(index: float, parameters: int, new: int, old: int) -> float:
    """Return how much an index exceeds that of two samples of one population in the mean, 0 if it does not."""
    return max(0.0, index - parameters * (1 / new + 1 / old))


class _Entry(NamedTuple):
    """The numbers of a scalar, or of an entry of a tensor: how many there are, and their moments and extremes."""

    size: int
    mean: float
    std: float
    min: float
    max: float

    @property
    def is_constant(self) -> bool:
        """Whether all numbers are the same; rounding may give such numbers a deviation, and underflow others none."""
        return self.min == self.max or self.std * self.std == 0


def _split_entries(column: Statistics) -> Iterator[_Entry]:
    for moments in zip(column.mean, column.std, column.min, column.max, strict=True):
        yield _Entry(column.count, *moments)


def _compare_numbers(new: _Entry, old: _Entry) -> float:
    """Return the index of two normal distributions; infinity if numbers became constant, or a constant changed."""
    if new.is_constant or old.is_constant:
        return math.inf if _is_unlikely(new, old) or _is_unlikely(old, new) else 0.0
    shift, variance, old_variance = (new.mean - old.mean) ** 2, new.std * new.std, old.std * old.std
    index = ((variance + shift) / old_variance + (old_variance + shift) / variance) / 2 - 1
    return _subtract_noise(index, 2, new.size, old.size)


def _is_unlikely(constant: _Entry, other: _Entry) -> bool:
    """Return whether `constant` is one value c in too many rows for a sample of `other`.

    The share of the numbers x of `other` that differ from c is at least mean (x - c)^2 / max (x - c)^2, and, by the
    inequality of Cauchy and Schwarz, at least (mean (x - c))^2 / mean (x - c)^2. For entries of sparse vectors, which
    are often 0 in all rows of a sample, both are small.
    """
    value = constant.min
    farthest = max(abs(other.min - value), abs(other.max - value))
    if not (constant.is_constant and farthest):
        return False
    shift = other.mean - value
    square = other.std**2 + shift**2
    share = max(square / farthest**2, shift**2 / square if square else 0.0)
    return constant.size * share >= MIN_ROWS


def find_violations(
    split: str, statistics: Mapping[str, Statistics], expected: Mapping[str, Expectation], types: Mapping[str, str]
) -> Iterator[Violation]:
    """Yield each violation in one split.

    Args:
        split: The name of the split.
        statistics: The statistics of each column that is expected, and of others.
        expected: The expectation for each column.
        types: The type of each column.
    """
    for column, expectation in expected.items():
        one, kind = statistics[column], types[column]
        for violation in (*_check_range(expectation, one, kind), *_check_values(expectation, one, kind)):
            yield Violation(expectation.severity, split, column, *violation)


def _check_range(expectation: Expectation, statistics: Statistics, kind: str) -> Iterator[tuple[str, str]]:
    given = {"min": expectation.min, "max": expectation.max}
    limits = {name: _read_number(limit, kind) for name, limit in given.items() if limit is not None}
    if limits and statistics.count and not statistics.min:
        yield " and ".join(f"{name} {_show(limit)}" for name, limit in limits.items()), "a column without numbers"
    if "min" in limits and statistics.min and (low := _read_number(min(statistics.min), kind)) < limits["min"]:
        yield f"min {_show(limits['min'])}", _show(low)
    if "max" in limits and statistics.max and (high := _read_number(max(statistics.max), kind)) > limits["max"]:
        yield f"max {_show(limits['max'])}", _show(high)
    nulls, rows = statistics.nulls, statistics.count + statistics.nulls
    if expectation.nulls is not None and nulls > expectation.nulls * rows:
        yield f"nulls at most {expectation.nulls:g}", f"{nulls / rows:.3g} ({nulls:,} of {rows:,})"


def _check_values(expectation: Expectation, statistics: Statistics, kind: str) -> Iterator[tuple[str, str]]:
    if not expectation.has_values:
        return
    if statistics.values is None:
        yield "at most 1,000 values", "more than 1,000 values, or no scalar"
        return
    counts: Counter[_Value] = Counter()
    for text, count in statistics.values.items():
        counts[_read_value(text, kind)] += count
    expected = dict.fromkeys(_read_value(text, kind) for text in expectation.values or ())
    if expectation.values is not None and (others := [value for value in counts if value not in expected]):
        shown = ", ".join(f"{_show(value)} ({counts[value]:,} rows)" for value in others[:_MAX_VALUES_SHOWN])
        yield f"one of {', '.join(map(_show, expected))}", shown
    if expectation.rows_per_value is not None:
        for value in dict.fromkeys([*expected, *counts]):
            if counts[value] < expectation.rows_per_value:
                yield f"{expectation.rows_per_value:,} rows of {_show(value)!r}", f"{counts[value]:,}"


def _read_value(text: str, kind: str) -> _Value:
    """Return a value as a column of the type `kind` has it; the text itself if such a column cannot have it."""
    try:
        if kind in _FLOATS:
            return _read_number(text, kind)
        if "int" in kind and (number := Fraction(text)).denominator == 1:
            return int(number)
    except ValueError:
        pass
    return text


def _read_number(number: float | str, kind: str) -> float:
    """Return a number as the one of a column of the type `kind` that is next to it, in its shortest digits."""
    return float(str(_FLOATS[kind](number))) if kind in _FLOATS else float(number)


def _show(value: _Value) -> str:
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
