"""Look at a batch dataset and its versions: `python -m etl.inspect --help`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from textwrap import indent

from etl import shards
from trainyard.contract import manifest, storage, versions
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import BatchManifest, Column, Statistics
from trainyard.contract.table import table
from trainyard.contract.versions import Difference

_SHOWN_VALUES = 10


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, or 1 when the dataset is not there or `--verify` found a bad shard."""
    parser = argparse.ArgumentParser(prog="python -m etl.inspect", description="Look at a batch dataset.")
    parser.add_argument("dataset", help="URI or path of the dataset")
    parser.add_argument("--verify", action="store_true", help="read every shard and check its sha256")
    parser.add_argument("--json", action="store_true", help="print the manifest as JSON")
    parser.add_argument("--at", type=int, metavar="VERSION", help="the version to look at; by default the current one")
    parser.add_argument("--versions", action="store_true", help="list the versions that are kept")
    parser.add_argument("--compare", type=int, metavar="VERSION", help="what came and went since that version")
    parser.add_argument("--expire", type=int, metavar="KEEP", help="remove all versions but the newest KEEP")
    parser.add_argument("--days", type=float, default=7, help="with --expire: keep what was replaced since (default 7)")
    parser.add_argument("--clean", action="store_true", help="remove what no version names; not beside a writer")
    given = parser.parse_args(arguments)
    try:
        shown = manifest.at(given.dataset, given.at)
        bad = verify(given.dataset, shown) if given.verify else []
        notes = list(_notes(given, shown, bad))
    except TrainyardError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(shown.to_json() + "\n" if given.json else "".join(f"{line}\n" for line in card(shown)))
    (sys.stderr if given.json else sys.stdout).write("".join(f"{note}\n" for note in notes))
    return 1 if bad else 0


def _notes(given: argparse.Namespace, shown: BatchManifest, bad: list[str]) -> Iterator[str]:
    """What was asked for beside the card, done and told."""
    if given.verify:
        yield f"verified {sum(len(split.shards) for split in shown.splits.values())} shards: {len(bad)} bad"
        yield from bad
    if given.versions:
        yield "versions"
        yield from history(versions.all_of(given.dataset))
    if given.compare is not None:
        yield f"version {given.compare} -> {shown.number}"
        yield from told(versions.difference(manifest.at(given.dataset, given.compare), shown))
    if given.expire is not None:
        gone = versions.expire(given.dataset, given.expire, given.days)
        yield f"expired {len(gone)} versions: {', '.join(map(str, gone))}"
    if given.clean:
        removed = clean(given.dataset)
        yield f"removed {len(removed)} unreferenced:"
        yield from removed


def card(dataset: BatchManifest) -> Iterator[str]:
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


def history(kept: Iterable[BatchManifest]) -> Iterator[str]:
    """A line for each version."""
    header = ["version", "written", "rows", "partitions", "content", "application"]
    rows = (
        [str(v.number), v.provenance.written_at, f"{v.rows:,}", str(len(v.partitions)), v.content_hash[:12],
         v.provenance.application] for v in kept
    )  # fmt: skip
    yield from _table(header, rows)


def told(difference: Difference) -> Iterator[str]:
    """What sets two versions apart, line by line."""
    for verb in ("added", "replaced", "removed"):
        if names := getattr(difference, verb):
            yield f"  {verb} partitions: {', '.join(name or '(unnamed)' for name in names)}"
    for split, (before, after) in difference.rows.items():
        yield f"  split {split}: {before:,} -> {after:,} rows"
    for verb, columns in (("gone", difference.old_columns), ("new", difference.new_columns)):
        for column in columns:
            yield f"  {verb} column {column.name}: {column.kind} of {column.type} {_shape(column)}".rstrip()


def verify(dataset: str, current: BatchManifest) -> list[str]:
    """A sentence for each shard that is missing or not as it was written."""
    bad = []
    for split in current.splits.values():
        for shard in split.shards:
            try:
                shards.verify(dataset, shard)
            except TrainyardError as error:
                bad.append(str(error))
    return bad


def clean(dataset: str) -> list[str]:
    """Remove what no version names; the paths removed. Not while a writer is at work."""
    paths = versions.unreferenced(dataset)
    for path in paths:
        storage.remove(storage.join(dataset, path))
    return paths


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


if __name__ == "__main__":
    sys.exit(main())
