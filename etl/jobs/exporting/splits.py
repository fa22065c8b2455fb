"""Assign rows to splits, and shuffle them, as functions of their content and a seed.

The splits of a DataFrame stay the same when its rows come in another order, from other partitions, or together with
further rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Observation, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import get_column, missing_column_error, quote, raise_error

SPLIT = "__split"
FIRST = "train"
"""The split of rows before all times."""
_ORDER = "__order"
_STRATUM, _PART, _SIZE, _COUNT = "__stratum", "__part", "__size", "__count"
_TOTAL, _OFFSET, _RANK = "__total", "__offset", "__rank"
_OWN = frozenset({SPLIT, _ORDER, _STRATUM, _PART, _SIZE, _COUNT, _TOTAL, _OFFSET, _RANK})
_BITS = 53
_OTHER_ROWS = (
    "stratify: an executor was lost, and its rows were others when they were computed again. Make prepare return the "
    "same rows each time, for example with a fixed seed for random numbers, or remove stratify."
)
_STRATUM_BITS = 12
"""Each stratum is cut by the highest bits of its rows' hashes into so many parts, which tasks sort."""


def check_names(names: Sequence[str]) -> None:
    """Check that no column has the name of one that this module adds. Raises TrainyardError if one has."""
    for name in names:
        if name.lower() in _OWN:
            raise TrainyardError(f"the column {name!r} has a name that the export uses itself; rename it in prepare.")


def assign(
    frame: DataFrame,
    splits: Mapping[str, float],
    split_by: str | None = None,
    stratify: str | None = None,
    seed: int = 0,
) -> DataFrame:
    """Return `frame` with the column `SPLIT`, the name of each row's split.

    By default the hash of the whole row determines the split, so that equal rows share one; with `split_by` the hash
    of that column, so that rows with one value share one. Neither depends on other rows: a row stays in its split when
    others are added, and fractions hold on average.

    With `stratify` the fractions hold exactly, to one row, within each value of that column: its rows are ordered by
    their hash, and the order is cut. That takes a shuffle, and `frame` is read twice: pass rows that `compute_once`
    stored, unless they are the same each time. An added row moves at most one other row across each cut of its own
    stratum. Equal rows still share a split: they are ordered before single rows, which then fill up the fractions.

    Args:
        frame: The rows.
        splits: The fraction of each split; they sum to 1.
        split_by: The column whose values determine the split.
        stratify: The column within each value of which the fractions hold.
        seed: The seed of the hash.

    Raises:
        TrainyardError: `split_by` or `stratify` is not a column of `frame`.
    """
    for option, name in (("split_by", split_by), ("stratify", stratify)):
        if name is not None and name not in frame.columns:
            raise missing_column_error(name, option, frame.columns)
    if stratify is None:
        position = _to_fraction(_hash([split_by] if split_by else frame.columns, seed))
    else:
        return _assign_by_stratum(frame, splits, stratify, seed)
    return frame.withColumn(SPLIT, _choose_split(position, splits))


@contextmanager
def compute_once(frame: DataFrame) -> Iterator[DataFrame]:
    """Store the rows of a DataFrame on the disks of the executors when they are first computed.

    Rows that are computed again may be others: those of a function with random numbers, or of a source that changed.

    Yields:
        The DataFrame. Its rows are removed from the disks with the end of the body.
    """
    frame.persist(StorageLevel.DISK_ONLY)
    try:
        yield frame
    finally:
        frame.unpersist()


def _assign_by_stratum(frame: DataFrame, splits: Mapping[str, float], stratify: str, seed: int) -> DataFrame:
    """Return `frame` with the split of each row by its rank in its stratum.

    Groups of equal rows come first, those of more rows before others, so that single rows fill up the splits. The rank
    is the number of rows in the parts of the stratum before its own, plus the rank in that part: no task sorts all rows
    of a stratum, of which there may be two.
    """
    bits = _hash(frame.columns, seed)
    stratum = get_column(stratify).alias(_STRATUM)
    part = F.shiftright(F.col(_ORDER), 64 - _STRATUM_BITS).alias(_PART)
    size = F.floor(F.log2(F.col(_COUNT))).alias(_SIZE)
    groups = frame.select(stratum, bits.alias(_ORDER)).groupBy(_STRATUM, _ORDER).agg(F.count(F.lit(1)).alias(_COUNT))
    counts = groups.groupBy(_STRATUM, size, part).agg(F.sum(_COUNT).alias(_COUNT))
    of_stratum = Window.partitionBy(_STRATUM)
    earlier = of_stratum.orderBy(F.desc(_SIZE), _PART).rowsBetween(Window.unboundedPreceding, -1)
    offsets = counts.select(
        _STRATUM, _SIZE, _PART,
        F.coalesce(F.sum(_COUNT).over(earlier), F.lit(0)).alias(_OFFSET), F.sum(_COUNT).over(of_stratum).alias(_TOTAL),
    )  # fmt: skip
    columns = [get_column(name) for name in frame.columns]
    keyed = frame.select(*columns, stratum, bits.alias(_ORDER)).withColumn(_PART, part)
    equal = F.count(F.lit(1)).over(Window.partitionBy(_STRATUM, _PART, _ORDER)).alias(_COUNT)
    sized = keyed.repartition(_STRATUM, _PART).select("*", equal).select("*", size)
    rank = F.rank().over(Window.partitionBy(_STRATUM, _SIZE, _PART).orderBy(_ORDER)).alias(_RANK)
    ranked = sized.select(*columns, _STRATUM, _SIZE, _PART, _COUNT, rank)
    same = [ranked[name].eqNullSafe(offsets[name]) for name in (_STRATUM, _SIZE, _PART)]
    joined = ranked.join(offsets, same[0] & same[1] & same[2], "left")
    offset = F.coalesce(_OFFSET, raise_error(F.lit(_OTHER_ROWS)))
    position = (offset + F.col(_RANK) + F.col(_COUNT) / 2 - 1) / F.col(_TOTAL)
    return joined.select(*columns, _choose_split(position, splits).alias(SPLIT))


def names_by_time(times: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all splits of `assign_by_time`, the earliest first."""
    return (FIRST, *times)


def assign_by_time(frame: DataFrame, column: str, times: Mapping[str, str]) -> DataFrame:
    """Return `frame` with the column `SPLIT`: the last split that has begun at the time of the row.

    Args:
        frame: The rows.
        column: A column of dates or timestamps. A row in which it is null is an error of the Spark job.
        times: The time at which each split begins, the earliest first. Earlier rows are in `FIRST`.
    """
    time = get_column(column)
    missing = raise_error(F.lit(_null_time_text(column)))
    begun = [(time.cast("timestamp") >= F.lit(text).cast("timestamp"), name) for name, text in times.items()]
    split = reduce(lambda earlier, later: F.when(later[0], later[1]).otherwise(earlier), begun, F.lit(FIRST))
    return frame.withColumn(SPLIT, F.when(time.isNull(), missing).otherwise(split))


def check_time_column(frame: DataFrame, column: str) -> None:
    """Check that a column has dates or timestamps. Raises TrainyardError if it does not."""
    kind = frame.schema[column].dataType
    if not isinstance(kind, DateType | TimestampType | TimestampNTZType):
        raise TrainyardError(
            f"split_by={column!r} has type {kind.simpleString()}, and splits are dates; cast it to date or "
            "timestamp in prepare."
        )


def shuffle(
    frame: DataFrame,
    shards: int,
    seed: int = 0,
    split: str = SPLIT,
    counts: Observation | None = None,
    split_by: str | None = None,
) -> DataFrame:
    """Return the rows of `frame` in random order in `shards` partitions.

    Each partition is sorted by the column `split`, then by the hash of the row, so that the same rows always result in
    the same partitions in the same order.

    Args:
        frame: The rows.
        shards: The number of partitions.
        seed: The seed of the hash.
        split: The column of the splits.
        counts: Where to count, while the rows are written, about how many are `distinct`, or values of `split_by`, and
            how many are in pairs with their split (`placed`).
        split_by: The column whose values determine the split.
    """
    data = [name for name in frame.columns if name != split]
    ordered = frame.withColumn(_ORDER, _hash(data, seed + 1))
    if counts is not None:
        of = get_column(split_by) if split_by else F.col(_ORDER)
        placed = F.xxhash64(_ORDER, get_column(split))
        ordered = ordered.observe(
            counts, *(F.approx_count_distinct(c, 0.01).alias(n) for n, c in (("distinct", of), ("placed", placed)))
        )
    return ordered.repartition(shards, _ORDER).sortWithinPartitions(get_column(split), _ORDER).drop(_ORDER)


def _null_time_text(column: str) -> str:
    return (
        f"column {column!r}, by whose times splits are assigned, is null in a row. Fill it, or drop the row in prepare."
    )


def _hash(names: Sequence[str], seed: int) -> Column:
    """Return 64 bits of `names`. xxhash64 skips nulls, so which columns are null is hashed too.

    That is hashed of each column, also of one that is never null by the schema: a `fillna` in `prepare` changes the
    schema of days that follow, and must not move their rows. It is an SQL text, because an object for each of thousands
    of columns takes Spark milliseconds.
    """
    columns = [quote(name) for name in names]
    nulls = [f"isnull({column})" for column in columns]
    return F.expr(f"xxhash64({', '.join([str(seed), *columns, *nulls])})")


def _to_fraction(bits: Column) -> Column:
    """Return the highest 53 bits as a number in [0, 1)."""
    return F.shiftrightunsigned(bits, 64 - _BITS) / F.lit(float(1 << _BITS))


def _choose_split(position: Column, splits: Mapping[str, float]) -> Column:
    """Return the name of the split whose range contains a position in [0, 1)."""
    *first, last = splits
    bounds = [sum(list(splits.values())[: index + 1]) for index in range(len(first))]
    cuts = list(zip(first, bounds, strict=True))
    return reduce(lambda rest, cut: F.when(position < cut[1], cut[0]).otherwise(rest), reversed(cuts), F.lit(last))
