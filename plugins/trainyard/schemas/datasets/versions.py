"""The versions of a dataset: list, compare, lease while reading, and expire them.

DATASET/leases/00000007-STARTED-READER    version 7 is being read, or was by a reader that ended without releasing it
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime

from trainyard.files import storage, uris
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import Column, DatasetManifest

DAY = 86400.0
MAX_LEASE_SECONDS = 30 * DAY
"""An older lease was left behind by a reader that ended without releasing it."""
_LEASE = re.compile(r"\d+-\d+-.*")


@dataclass(frozen=True)
class Difference:
    """How version `new` differs from `old`: names of partitions, (old, new) rows of each split, and columns."""

    added: tuple[str, ...]
    replaced: tuple[str, ...]
    removed: tuple[str, ...]
    rows: dict[str, tuple[int, int]]
    old_columns: tuple[Column, ...]
    new_columns: tuple[Column, ...]


def iterate(dataset: str, after: int = 0) -> Iterator[DatasetManifest]:
    """Read the manifests of the versions after one of them, oldest first, one at a time."""
    for number in manifests.list_versions(dataset):
        if number > after:
            yield manifests.read_version(dataset, number)


def difference(old: DatasetManifest, new: DatasetManifest) -> Difference:
    """Compare two versions."""
    before, after = old.partitions, new.partitions
    common = [name for name in after if name in before]
    splits = list(dict.fromkeys([*old.splits, *new.splits]))
    return Difference(
        added=tuple(name for name in after if name not in before),
        replaced=tuple(name for name in common if before[name].directory != after[name].directory),
        removed=tuple(name for name in before if name not in after),
        rows={name: (_rows(old, name), _rows(new, name)) for name in splits},
        old_columns=tuple(column for column in old.columns if column not in new.columns),
        new_columns=tuple(column for column in new.columns if column not in old.columns),
    )


@contextmanager
def lease(dataset: str, number: int, reader: str) -> Iterator[None]:
    """Keep version `number` from expiring while the body runs.

    Args:
        dataset: The URI of the dataset. One that this user may not write to is read without a lease.
        number: The version.
        reader: A name that is unique to this reader.
    """
    uri = uris.join(dataset, "leases", f"{number:08d}-{int(time.time())}-{reader}")
    try:
        storage.replace(uri, b"")
    except (OSError, RuntimeError) as error:
        print(f"version {number} of {dataset} is read without a lease, so it may expire meanwhile: {error}", flush=True)
    try:
        yield
    finally:
        with suppress(OSError, RuntimeError):
            storage.remove(uri)


def list_old(dataset: str, keep: int, days: float, now: float | None = None) -> dict[int, set[str]]:
    """Return the versions that may be removed, each with what it refers to.

    Args:
        dataset: The URI of the dataset.
        keep: How many of the newest versions stay.
        days: Versions that were replaced less than so many days ago stay, as do leased ones.
        now: The current time, in seconds since the epoch.
    """
    now = time.time() if now is None else now
    leased = leased_versions(dataset, now)
    numbers = manifests.list_versions(dataset)
    old: dict[int, set[str]] = {}
    candidates = max(0, len(numbers) - max(keep, 1))
    for version, successor in itertools.pairwise(itertools.islice(iterate(dataset), candidates + 1)):
        if now - _written_at(successor) < days * DAY:
            break  # as are all newer ones
        if version.number not in leased:
            old[version.number] = referenced_paths(version)
    return old


def expire(dataset: str, keep: int, days: float, now: float | None = None) -> list[int]:
    """Remove old versions, and the shards that only they refer to; see `list_old`.

    A version is removed before its shards, so that a reader that finds a version finds all of it.

    Returns:
        The numbers of the removed versions.
    """
    removed = list_old(dataset, keep, days, now)
    if not removed:
        return []
    unused = set().union(*removed.values())
    for number in manifests.list_versions(dataset):
        if number not in removed:
            unused -= referenced_paths(manifests.read_version(dataset, number))
    for number in removed:
        manifests.remove_version(dataset, number)
    for path in sorted(unused):
        storage.remove(uris.join(dataset, path))
    return list(removed)


def unreferenced(dataset: str) -> list[str]:
    """Return directories, shards and statistics that no version refers to: of failed writers, or of active ones."""
    shards: set[str] = set()
    referenced: set[str] = set()
    for version in iterate(dataset):
        shards |= {shard.path for split in version.splits.values() for shard in split.shards}
        referenced |= referenced_paths(version)
    documents = [
        f"{folder}/{name}" for folder in ("statistics", "fitted")
        for name in storage.list_names(uris.join(dataset, folder))
    ]  # fmt: skip
    paths = [path for path in documents if path not in referenced]
    for write in storage.list_names(uris.join(dataset, "shards")):
        written = [f"shards/{write}/{name}" for name in storage.list_names(uris.join(dataset, "shards", write))]
        paths += [f"shards/{write}"] if not shards.intersection(written) else [p for p in written if p not in shards]
    return paths


def remove_unreferenced(dataset: str) -> list[str]:
    """Remove what no version refers to, and return its paths. Not safe while a job writes to the dataset."""
    paths = unreferenced(dataset)
    for path in paths:
        storage.remove(uris.join(dataset, path))
    return paths


def referenced_paths(version: DatasetManifest) -> set[str]:
    """Return what a version refers to, relative to the dataset: directories of shards, statistics, the fitted state."""
    fitted = {version.fitted.path} if version.fitted else set()
    return fitted | {path for part in version.partitions.values() for path in (part.directory, part.statistics)}


def _rows(version: DatasetManifest, split: str) -> int:
    return version.splits[split].rows if split in version.splits else 0


def leased_versions(dataset: str, now: float) -> set[int]:
    """Return the versions that are read at a time in seconds since the epoch."""
    return read_leases(filter(_LEASE.fullmatch, storage.list_names(uris.join(dataset, "leases"))), now)


def read_leases(names: Iterable[str], now: float) -> set[int]:
    """Return the versions that files in `leases/` name. Raises ValueError for a name that is not one of a lease."""
    leases = [name.split("-", 2) for name in names if not name.startswith(".")]
    return {int(number) for number, started, _ in leases if now - int(started) < MAX_LEASE_SECONDS}


def _written_at(version: DatasetManifest) -> float:
    return datetime.fromisoformat(version.provenance.written_at).timestamp()
