"""Describe datasets and their versions as lines of text. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from textwrap import indent

from trainyard.schemas.datasets.manifest import Column, DatasetManifest, Statistics
from trainyard.schemas.datasets.versions import Difference
from trainyard.text import table

_MAX_VALUES = 10


def describe_dataset(dataset: DatasetManifest) -> Iterator[str]:
    """Yield lines with the content, columns, statistics and provenance of a dataset."""
    yield f"content    {dataset.content_hash}  (version {dataset.number}, {dataset.rows:,} rows)"
    yield "columns"
    sizes = ([c.name, c.kind, c.type, _shape(c) or _size(dataset, c.name)] for c in dataset.columns)
    yield from _table(["name", "kind", "type", "shape"], sizes)
    for name, split in dataset.splits.items():
        size = sum(shard.bytes for shard in split.shards)
        batches = sum(len(shard.lengths) for shard in split.shards)
        yield f"split {name}: {split.rows:,} rows, {len(split.shards)} shards, {batches} record batches, {size:,} bytes"
        header = ["name", "count", "nulls", "mean", "std", "min", "max", "values"]
        yield from _table(header, ([c, *_figures(statistics)] for c, statistics in split.statistics.items()))
    if list(dataset.partitions) != [""]:
        yield "partitions"
        header = ["name", "since version", "rows", "application"]
        rows = ([n, str(p.version), f"{p.rows:,}", p.provenance.application] for n, p in dataset.partitions.items())
        yield from _table(header, rows)
    yield "provenance"
    provenance = dataset.provenance.model_dump()
    versions = sorted(provenance["versions"].items())
    provenance["versions"] = ", ".join(f"{name} {version}" for name, version in versions)
    first, *more = ([key, str(value)] for key, value in provenance.items() if value)
    yield from _table(first, more)


def describe_versions(versions: Iterable[DatasetManifest]) -> Iterator[str]:
    """Yield a line for each version."""
    header = ["version", "written", "rows", "partitions", "content", "application"]
    rows = (
        [str(v.number), v.provenance.written_at, f"{v.rows:,}", str(len(v.partitions)), v.content_hash[:12],
         v.provenance.application] for v in versions
    )  # fmt: skip
    yield from _table(header, rows)


def describe_difference(difference: Difference) -> Iterator[str]:
    """Yield lines with the difference between two versions."""
    for verb in ("added", "replaced", "removed"):
        if names := getattr(difference, verb):
            yield f"  {verb} partitions: {', '.join(name or '(unnamed)' for name in names)}"
    for split, (before, after) in difference.rows.items():
        yield f"  split {split}: {before:,} -> {after:,} rows"
    for verb, columns in (("removed", difference.old_columns), ("added", difference.new_columns)):
        for column in columns:
            yield f"  {verb} column {column.name}: {column.kind} of {column.type} {_shape(column)}".rstrip()


def _shape(column: Column) -> str:
    return json.dumps(column.shape) if column.kind == "tensor" else ""


def _size(dataset: DatasetManifest, column: str) -> str:
    """Return how many values a column of categories has, or how many classes the label."""
    fitted = dataset.fitted
    if fitted is None or column not in fitted.sizes:
        return ""
    size = fitted.sizes[column]
    return f"{size:,} classes" if column in fitted.labels else f"{size - 1:,} categories"


def _figures(statistics: Statistics) -> list[str]:
    """Return the statistics of a column; of a tensor the mean of means, the largest deviation, and the extremes."""
    numbers = ["", "", "", ""]
    if statistics.mean:
        mean = sum(statistics.mean) / len(statistics.mean)
        numbers = [f"{n:.6g}" for n in (mean, max(statistics.std), min(statistics.min), max(statistics.max))]
    return [f"{statistics.count:,}", f"{statistics.nulls:,}", *numbers, _values(statistics.values)]


def _values(values: dict[str, int] | None) -> str:
    if values is None:
        return ""
    if len(values) > _MAX_VALUES:
        return f"{len(values)} distinct"
    return " ".join(f"{value}:{count}" for value, count in values.items())


def _table(header: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield from indent(table(header, list(rows)), "  ").splitlines()
