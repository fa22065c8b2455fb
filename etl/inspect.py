"""Look at a batch dataset: `python -m etl.inspect DATASET [--verify] [--clean] [--json]`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator

from etl import shards
from trainyard.contract import manifest, storage
from trainyard.contract.errors import TrainyardError
from trainyard.contract.manifest import BatchManifest, Column, Statistics

_SHOWN_VALUES = 10


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 0, or 1 when the dataset is not there or `--verify` found a bad shard."""
    parser = argparse.ArgumentParser(prog="python -m etl.inspect", description="Look at a batch dataset.")
    parser.add_argument("dataset", help="URI or path of the dataset")
    parser.add_argument("--verify", action="store_true", help="read every shard and check its sha256")
    parser.add_argument("--clean", action="store_true", help="remove shards that the current version does not name")
    parser.add_argument("--json", action="store_true", help="print the manifest as JSON")
    given = parser.parse_args(arguments)
    try:
        current = manifest.current(given.dataset)
        sys.stdout.write(current.to_json() + "\n" if given.json else "".join(f"{line}\n" for line in card(current)))
        bad = verify(given.dataset, current) if given.verify else []
        removed = clean(given.dataset) if given.clean else []
    except TrainyardError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    count = sum(len(split.shards) for split in current.splits.values())
    notes = [f"verified {count} shards: {len(bad)} bad", *bad] if given.verify else []
    notes += [f"removed {len(removed)} unreferenced:", *removed] if given.clean else []
    (sys.stderr if given.json else sys.stdout).write("".join(f"{note}\n" for note in notes))
    return 1 if bad else 0


def card(dataset: BatchManifest) -> Iterator[str]:
    """The dataset for reading: content, columns, statistics and provenance, line by line."""
    yield f"content    {dataset.content_hash}  (version {dataset.number}, {dataset.rows:,} rows)"
    yield "columns"
    yield from _table(["name", "kind", "type", "shape"], ([c.name, c.kind, c.type, _shape(c)] for c in dataset.columns))
    for name, split in dataset.splits.items():
        size = sum(shard.bytes for shard in split.shards)
        batches = sum(len(shard.batches) for shard in split.shards)
        yield f"split {name}: {split.rows:,} rows, {len(split.shards)} shards, {batches} record batches, {size:,} bytes"
        header = ["name", "count", "nulls", "mean", "std", "min", "max", "values"]
        yield from _table(header, ([c, *_figures(found)] for c, found in split.statistics.items()))
    yield "provenance"
    told = dataset.provenance.model_dump()
    told["versions"] = ", ".join(f"{name} {version}" for name, version in sorted(told["versions"].items()))
    yield from _table([], ([key, str(value)] for key, value in told.items() if value))


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
    """Remove what the current version does not name; the paths removed. Not while a writer is at work."""
    paths = manifest.unreferenced(dataset)
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
    lines = [header, *rows] if header else list(rows)
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


if __name__ == "__main__":
    sys.exit(main())
