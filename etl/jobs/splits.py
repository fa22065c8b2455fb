"""Which split a row is in, and where it stands in the global order: functions of its content and a seed.

The splits of a DataFrame stay the same when its rows come in another order, from other partitions,
or with more rows among them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from trainyard.etl.datasource.columns import missing

SPLIT = "__split"
_ORDER = "__order"
_BITS = 53


def assign(
    frame: DataFrame,
    splits: Mapping[str, float],
    split_by: str | None = None,
    stratify: str | None = None,
    seed: int = 0,
) -> DataFrame:
    """`frame` with the column `SPLIT`, which names each row's split; `splits` are fractions that sum to 1.

    By default the hash of the whole row decides, so that equal rows share a split; with `split_by`
    the hash of that column alone, so that one key never crosses splits. Neither depends on other
    rows: a row stays where it is when others are added, and fractions hold on average.

    With `stratify` the fractions hold exactly, to one row, within each value of that column: rows
    are ranked by their hash there, and the ranks are cut. That costs a shuffle, and a row added moves at
    most one other row across each cut of its own stratum. Equal rows still share a split.
    """
    for option, name in (("split_by", split_by), ("stratify", stratify)):
        if name is not None and name not in frame.columns:
            raise missing(name, option, frame.columns)
    if stratify is None:
        place = _fraction(_hash(frame, [split_by] if split_by else frame.columns, seed))
    else:
        stratum = Window.partitionBy(column(stratify))
        rank = F.rank().over(stratum.orderBy(_hash(frame, frame.columns, seed)))
        place = (rank - 0.5) / F.count(F.lit(1)).over(stratum)
    return frame.withColumn(SPLIT, _choose(place, splits))


def shuffle(frame: DataFrame, shards: int, seed: int = 0) -> DataFrame:
    """The rows of `frame`, which has the column `SPLIT`, in `shards` partitions in an order of chance.

    Each partition is sorted by split, then by the hash of the row, so that the same rows always
    give the same partitions in the same order.
    """
    data = [name for name in frame.columns if name != SPLIT]
    ordered = frame.withColumn(_ORDER, _hash(frame, data, seed + 1))
    return ordered.repartition(shards, _ORDER).sortWithinPartitions(SPLIT, _ORDER).drop(_ORDER)


def _hash(frame: DataFrame, names: list[str], seed: int) -> Column:
    """64 bits of `names`. xxhash64 passes over nulls, so that which columns are null is hashed with them."""
    nullable = [F.isnull(column(name)) for name in names if frame.schema[name].nullable]
    return F.xxhash64(F.lit(seed), *[column(name) for name in names], *nullable)


def _fraction(bits: Column) -> Column:
    """The highest 53 bits as a number in [0, 1)."""
    return F.shiftrightunsigned(bits, 64 - _BITS) / F.lit(float(1 << _BITS))


def _choose(place: Column, splits: Mapping[str, float]) -> Column:
    *first, last = splits
    bounds = [sum(list(splits.values())[: index + 1]) for index in range(len(first))]
    cuts = list(zip(first, bounds, strict=True))
    return reduce(lambda rest, cut: F.when(place < cut[1], cut[0]).otherwise(rest), reversed(cuts), F.lit(last))


def column(name: str) -> Column:
    """The column of this name, whatever is in it."""
    return F.col(f"`{name.replace('`', '``')}`")
