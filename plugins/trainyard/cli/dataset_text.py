"""Describe datasets and their versions as lines of text. Pure functions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from textwrap import indent

from trainyard.schemas.manifest import Column, DatasetManifest, Statistics
from trainyard.schemas.versions import Difference
from trainyard.table import table

_SHOWN_VALUES = 10


def card(dataset: DatasetManifest) -> Iterator[str]:
    """The dataset for reading: content, columns, statistics and provenance, line by line."""
    yield f"content    {dataset.content_hash}  (version {dataset.number}, {dataset.rows:,} rows)"
    yield "columns"
    yield from _table(["name", "kind", "type", "shape"], ([c.name, c.kind, c.type, _shape(c)] for c in dataset.columns))
    for name, split in dataset.splits.items():
        size = sum(shard.bytes for shard in split.shards)
        batches = sum(len(shard.lengths) for shard in split.shards)
        yield f"split {name}: {split.rows:,} rows, {len(split.shards)} shards, {batches} record batches, {size:,} bytes"
        header = ["name", "count", "nulls", "mean", "std", "min", "max", "values"]
        yield from _table(header, ([c, *_figures(found)] for c, found in split.statistics.items()))
    if list(dataset.partitions) != [""]:
        yield "partitions"
        header = ["name", "since version", "rows", "application"]
        rows = ([n, str(p.version), f"{p.rows:,}", p.provenance.application] for n, p in dataset.partitions.items())
        yield from _table(header, rows)
    yield "provenance"
    told = dataset.provenance.model_dump()
    told["versions"] = ", ".join(f"{name} {version}" for name, version in sorted(told["versions"].items()))
    first, *more = ([key, str(value)] for key, value in told.items() if value)
    yield from _table(first, more)


def version_table(kept: Iterable[DatasetManifest]) -> Iterator[str]:
    """A line for each version."""
    header = ["version", "written", "rows", "partitions", "content", "application"]
    rows = (
        [str(v.number), v.provenance.written_at, f"{v.rows:,}", str(len(v.partitions)), v.content_hash[:12],
         v.provenance.application] for v in kept
    )  # fmt: skip
    yield from _table(header, rows)


def describe_difference(difference: Difference) -> Iterator[str]:
    """What sets two versions apart, line by line."""
    for verb in ("added", "replaced", "removed"):
        if names := getattr(difference, verb):
            yield f"  {verb} partitions: {', '.join(name or '(unnamed)' for name in names)}"
    for split, (before, after) in difference.rows.items():
        yield f"  split {split}: {before:,} -> {after:,} rows"
    for verb, columns in (("gone", difference.old_columns), ("new", difference.new_columns)):
        for column in columns:
            yield f"  {verb} column {column.name}: {column.kind} of {column.type} {_shape(column)}".rstrip()


def _shape(column: Column) -> str:
    return json.dumps(column.shape) if column.kind == "tensor" else ""


def _figures(found: Statistics) -> list[str]:
    """Entries of a tensor are summed up: the mean of means, the largest deviation, the extremes."""
    numbers = ["", "", "", ""]
    if found.mean:
        of = (sum(found.mean) / len(found.mean), max(found.std), min(found.min), max(found.max))
        numbers = [f"{number:.6g}" for number in of]
    return [f"{found.count:,}", f"{found.nulls:,}", *numbers, _values(found.values)]


def _values(values: dict[str, int] | None) -> str:
    if values is None:
        return ""
    if len(values) > _SHOWN_VALUES:
        return f"{len(values)} distinct"
    return " ".join(f"{value}:{count}" for value, count in values.items())


def _table(header: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    yield from indent(table(header, list(rows)), "  ").splitlines()
