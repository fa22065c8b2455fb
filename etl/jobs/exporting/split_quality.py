"""Compare the splits of written rows with the ones that were asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from trainyard.files import uris
from trainyard.schemas.datasets.manifest import DatasetManifest, PartitionStatistics, Statistics

MIN_DEVIATIONS = 5
"""The standard deviations of the share of independent rows from which on it is not by chance."""
MIN_RELATIVE = 0.1
"""The difference of a share that is said, as a part of the smaller one of the split and the rest."""
MAX_PROBABILITY = 1e-6
"""The probability of a value to be missing in a split, below which it is said."""
MAX_VALUES = 50
"""The values up to which a column is one of classes or categories."""
MAX_VALUES_NAMED = 3
MIN_SHARED = 0.05
"""The part of the distinct rows in several splits from which on they are no error of the estimate."""


def find_warnings(
    dataset: str,
    version: DatasetManifest,
    partition: str,
    fractions: Mapping[str, float],
    split_by: str | None,
    counts: Mapping[str, int],
) -> list[str]:
    """Return what is wrong with the splits of a partition of a dataset, a sentence each.

    Args:
        dataset: The URI of the dataset.
        version: Its version in which the partition was written.
        partition: The name of the partition.
        fractions: The fraction of each split; none where a column or times assign the splits.
        split_by: The column whose values share a split.
        counts: What `splits.shuffle` has counted.
    """
    if not fractions:
        return find_shared_rows(counts["distinct"], counts["placed"])
    written = version.partitions[partition]
    statistics = PartitionStatistics.load(uris.join(dataset, written.statistics)).splits
    rows = {
        name: sum(shard.rows for shard in split.shards if shard.path.rpartition("/")[0] == written.directory)
        for name, split in version.splits.items()
    }
    return find_deviations(rows, statistics, fractions, split_by, counts["distinct"])


def find_deviations(
    rows: Mapping[str, int],
    statistics: Mapping[str, Mapping[str, Statistics]],
    fractions: Mapping[str, float],
    split_by: str | None,
    distinct: int,
) -> list[str]:
    """Return a warning if shares of splits, or values missing in one, are not those of a random assignment.

    Args:
        rows: The number of rows of each split.
        statistics: The statistics of each split, by column.
        fractions: The fraction of each split.
        split_by: The column whose values share a split; None if equal rows share one.
        distinct: The number of distinct rows, or values of `split_by`, as estimated.
    """
    total = sum(rows.values())
    clauses = []
    for name, fraction in fractions.items():
        share = rows.get(name, 0) / total
        chance = MIN_DEVIATIONS * math.sqrt(fraction * (1 - fraction) / total)
        if abs(share - fraction) > max(chance, MIN_RELATIVE * min(fraction, 1 - fraction)):
            clauses.append(f"split {name} has {share:.1%} of the rows, and {fraction:.1%} were asked for")
        if missing := list(_find_missing(name, fraction, statistics, split_by)):
            more = f" and {len(missing) - MAX_VALUES_NAMED} more" if len(missing) > MAX_VALUES_NAMED else ""
            clauses.append(f"split {name} has no row with {', '.join(missing[:MAX_VALUES_NAMED])}{more}")
    if not clauses:
        return []
    if split_by:
        cause = (
            f"Rows with one value of {split_by!r} share a split, and it has about {distinct:,} values in {total:,} rows"
        )
        remedy = "Write a column with more values in split_by=, or assign splits in prepare and write splits=COLUMN"
    else:
        cause = f"Equal rows share a split, and about {min(distinct, total):,} of {total:,} rows are distinct"
        remedy = (
            "Keep a column that differs between the rows, such as an id, and write it in split_by=, or leave out "
            "repeated rows in prepare"
        )
    return [f"{'; '.join(clauses)}. {cause}. {remedy}."]


def find_shared_rows(distinct: int, placed: int) -> list[str]:
    """Return a warning if equal rows are in several splits.

    Args:
        distinct: About how many rows are distinct.
        placed: About how many are if rows of two splits never are equal.
    """
    if placed - distinct <= MIN_SHARED * distinct:
        return []
    return [
        f"about {placed - distinct:,} of {distinct:,} distinct rows are in several splits, so that a model is "
        "evaluated on rows that it was trained on. Leave out repeated rows in prepare, or assign equal rows to one "
        "split."
    ]


def _find_missing(
    split: str, fraction: float, statistics: Mapping[str, Mapping[str, Statistics]], split_by: str | None
) -> Iterator[str]:
    """Yield the values that are missing in a split, and improbably so, of columns with few values."""
    present = statistics.get(split, {})
    for name in {name: None for of_split in statistics.values() for name in of_split if name != split_by}:
        counted = [of_split[name].values for of_split in statistics.values() if name in of_split]
        if any(values is None or len(values) > MAX_VALUES for values in counted):
            continue
        own = present[name].values if name in present else None
        for value in {value: None for values in counted for value in values or ()}:
            count = sum(values.get(value, 0) for values in counted if values)
            is_by_chance = fraction == 1 or count * math.log1p(-fraction) >= math.log(MAX_PROBABILITY)
            if value not in (own or ()) and not is_by_chance:
                yield f"{name} = {value} ({count:,} rows)"
