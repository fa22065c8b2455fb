"""Remove what was decided on, so that what is half removed is never read as whole.

What makes something complete is removed first: the document of a version, the index of a checkpoint, the document of a
model's version. A run has none; its directory gets a name first that readers ignore. What an interruption leaves is
found by the next inventory.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterable, Sequence

from trainyard.errors import TrainyardError, summarize
from trainyard.files import storage, uris
from trainyard.jobs.retention.decision import Item, Removal
from trainyard.jobs.retention.inventory import REMOVED, newest_change
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets import versions
from trainyard.schemas.runs.checkpoint import INDEX
from trainyard.text import Log

_MARKS = {"checkpoints": INDEX, "models": "model.json"}
"""Kind -> the file that makes a directory complete."""


def remove(removals: Iterable[Removal], now: float, log: Log) -> list[Removal]:
    """Remove items, and return those that were removed. One that cannot be removed, or has changed, is logged.

    Args:
        removals: What is removed, ordered by kind and group.
        now: When the inventory was made, in seconds since the epoch.
        log: Gets a line for each item that stays.
    """
    removed: list[Removal] = []
    for (kind, group), chosen in itertools.groupby(removals, lambda one: (one.item.kind, one.item.group)):
        if kind == "datasets":
            removed += _remove_versions(group, list(chosen), now, log)
            continue
        for one in chosen:
            try:
                _remove_one(one.item)
            # Each file system raises exceptions of its own.
            except Exception as error:
                log(f"{one.item.uri} stays: {summarize(error)}")
            else:
                removed.append(one)
    return removed


def _remove_one(item: Item) -> None:
    if item.kind in ("environments", "owners"):
        storage.remove(item.uri)
        return
    changed = newest_change(storage.find_files(item.uri))
    if changed is not None and item.since is not None and changed > item.since:
        raise TrainyardError("it was changed meanwhile.")
    if item.kind == "models":
        _check_not_current(item)
    if mark := _MARKS.get(item.kind):
        storage.remove(uris.join(item.uri, mark))
        storage.remove(item.uri)
        return
    storage.remove(_hide(item.uri))


def _check_not_current(item: Item) -> None:
    if model_artifact.read_current(item.group).folder == item.uri.rpartition("/")[2]:
        raise TrainyardError("it has become the current version of the model.")


def _hide(run: str) -> str:
    """Give the directory of a run a name that readers ignore, and return it.

    A storage that does not rename directories loses the run's records first.
    """
    parent, _, name = run.rpartition("/")
    if name.startswith(REMOVED):
        return run
    if not storage.renames_directories(run):
        for part in ("records", "failures"):
            storage.remove(uris.join(run, part))
        return run
    hidden = uris.join(parent, f"{REMOVED}{name}-{uuid.uuid4().hex[:8]}")
    storage.move(run, hidden)
    return hidden


def _remove_versions(dataset: str, chosen: Sequence[Removal], now: float, log: Log) -> list[Removal]:
    """Remove versions and unused files of a dataset: first the documents of all versions, then files."""
    try:
        gone = {int(one.item.order) for one in chosen if one.item.counted}
        leased = versions.leased_versions(dataset, now)
        used: set[str] = set()
        for manifest in versions.iterate(dataset):  # also those that were committed since the inventory
            if manifest.number not in gone - leased:
                used |= {uris.join(dataset, path) for path in versions.referenced_paths(manifest)}
                used |= {uris.join(dataset, s.path) for split in manifest.splits.values() for s in split.shards}
        for number in sorted(gone - leased):
            manifests.remove_version(dataset, number)
        for one in chosen:
            for path in (*one.paths, *([] if one.item.counted else [one.item.uri])):
                if path not in used:
                    storage.remove(path)
    # Each file system raises exceptions of its own.
    except Exception as error:
        log(f"{dataset} stays in part: {summarize(error)}")
        return []
    if kept := gone & leased:
        log(f"{dataset} is read in versions {', '.join(map(str, sorted(kept)))}, which stay.")
    return [one for one in chosen if not one.item.counted or int(one.item.order) not in kept]
