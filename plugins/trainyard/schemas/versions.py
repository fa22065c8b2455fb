"""The versions of a dataset: listed, compared, pinned while they are read, and expired.

DATASET/leases/00000007-BEGUN-READER    version 7 is being read, or was by a reader that died
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from trainyard import storage
from trainyard.schemas import manifest as manifests
from trainyard.schemas.manifest import Column, DatasetManifest

DAY = 86400.0
LONGEST_READ = 30 * DAY
"""A pin that is older was left behind by a reader that died."""


@dataclass(frozen=True)
class Difference:
    """What became of `old` on the way to `new`: names of partitions, rows of each split in both, and columns."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    removed: tuple[str, ...]
    rows: dict[str, tuple[int, int]]
    old_columns: tuple[Column, ...]
    new_columns: tuple[Column, ...]


def list_all(dataset: str) -> list[DatasetManifest]:
    """Every version that is kept, oldest first."""
    return [manifests.read_version(dataset, number) for number in manifests.list_versions(dataset)]


def difference(old: DatasetManifest, new: DatasetManifest) -> Difference:
    """What sets `new` apart from `old`."""
    before, after = old.partitions, new.partitions
    shared = [name for name in after if name in before]
    splits = list(dict.fromkeys([*old.splits, *new.splits]))
    return Difference(
        added=tuple(name for name in after if name not in before),
        replaced=tuple(name for name in shared if before[name].directory != after[name].directory),
        removed=tuple(name for name in before if name not in after),
        rows={name: (_rows(old, name), _rows(new, name)) for name in splits},
        old_columns=tuple(column for column in old.columns if column not in new.columns),
        new_columns=tuple(column for column in new.columns if column not in old.columns),
    )


@contextmanager
def leased(dataset: str, number: int, reader: str) -> Iterator[None]:
    """While the body runs, version `number` does not expire. `reader` tells this reader from others.

    A dataset that this user may not write to is read without a pin.
    """
    uri = storage.join(dataset, "leases", f"{number:08d}-{int(time.time())}-{reader}")
    try:
        storage.replace(uri, b"")
    except (OSError, RuntimeError) as error:
        print(f"version {number} of {dataset} is read without a pin, so it may expire meanwhile: {error}", flush=True)
    try:
        yield
    finally:
        with suppress(OSError, RuntimeError):
            storage.remove(uri)


def expire(dataset: str, keep: int, days: float, now: float | None = None) -> list[int]:
    """Remove old versions, with what no other names; the numbers of those removed.

    The newest `keep` stay, those that were replaced less than `days` ago, and those that are pinned. A version goes
    before its shards do, so that whoever finds a version finds all of it.
    """
    now = time.time() if now is None else now
    found = list_all(dataset)
    held = _leased(dataset, now)
    gone: list[DatasetManifest] = []
    kept = found[-max(keep, 1) :]
    for version, successor in itertools.pairwise(found[: -max(keep, 1) + 1 or None]):
        old = now - _written(successor) >= days * DAY
        (gone if old and version.number not in held else kept).append(version)
    for version in gone:
        manifests.remove_version(dataset, version.number)
    for path in sorted(referenced_paths(gone) - referenced_paths(kept)):
        storage.remove(storage.join(dataset, path))
    return [version.number for version in gone]


def unreferenced(dataset: str) -> list[str]:
    """Directories, shards and statistics that no version names: of writers that died, or are at work."""
    kept_versions = list_all(dataset)
    kept = {s.path for version in kept_versions for split in version.splits.values() for s in split.shards}
    figures = [f"statistics/{name}" for name in storage.list_names(storage.join(dataset, "statistics"))]
    found = [path for path in figures if path not in referenced_paths(kept_versions)]
    for write in storage.list_names(storage.join(dataset, "shards")):
        paths = [f"shards/{write}/{name}" for name in storage.list_names(storage.join(dataset, "shards", write))]
        found += [f"shards/{write}"] if not kept.intersection(paths) else [p for p in paths if p not in kept]
    return found


def remove_unreferenced(dataset: str) -> list[str]:
    """Remove what no version names, and return its paths. Not safe while a job writes to the dataset."""
    paths = unreferenced(dataset)
    for path in paths:
        storage.remove(storage.join(dataset, path))
    return paths


def referenced_paths(versions: Iterable[DatasetManifest]) -> set[str]:
    """Directories of shards and files of statistics that versions name, relative to the dataset."""
    partitions = [partition for version in versions for partition in version.partitions.values()]
    return {path for partition in partitions for path in (partition.directory, partition.statistics)}


def _rows(version: DatasetManifest, split: str) -> int:
    return version.splits[split].rows if split in version.splits else 0


def _leased(dataset: str, now: float) -> set[int]:
    names = [name for name in storage.list_names(storage.join(dataset, "leases")) if not name.startswith(".")]
    pins = [name.split("-", 2) for name in names]
    return {int(number) for number, begun, _ in pins if now - int(begun) < LONGEST_READ}


def _written(version: DatasetManifest) -> float:
    return datetime.fromisoformat(version.provenance.written_at).timestamp()
