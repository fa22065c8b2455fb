"""Cross-validation: one fold of a dataset validates a model that is trained on all other folds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import DatasetManifest, Split, Statistics, content_hash, fold_name
from trainyard.trainer.data.mixture import merge_statistics

_NAME = re.compile(r"fold-\d+")


def hold_out(manifest: DatasetManifest, fold: int) -> DatasetManifest:
    """Return the manifest with the splits `train`, all folds but one, and `validation`, that one.

    Args:
        manifest: A dataset that was exported with folds.
        fold: The number of the fold that validates, from 1.

    Raises:
        TrainyardError: The dataset has no such fold, or no other one.
    """
    names = sorted(filter(_NAME.fullmatch, manifest.splits), key=lambda name: int(name.removeprefix("fold-")))
    chosen = fold_name(fold)
    others = [manifest.splits[name] for name in names if name != chosen]
    if chosen not in names or not others:
        problem = "other fold to train on" if chosen in names else "such fold"
        known = f"it has {', '.join(names)}" if names else "it has none: export it with folds="
        raise TrainyardError(f"fold={fold}: the dataset has no {problem}; {known}.")
    splits = {"train": _join(others), "validation": manifest.splits[chosen]}
    splits |= {name: split for name, split in manifest.splits.items() if name not in (*names, *splits)}
    hashed = content_hash(manifest.columns, splits, manifest.fitted)
    return manifest.model_copy(update={"splits": splits, "content_hash": hashed})


def _join(parts: Sequence[Split]) -> Split:
    return Split(
        rows=sum(part.rows for part in parts),
        shards=tuple(shard for part in parts for shard in part.shards),
        statistics={name: _join_statistics([part.statistics[name] for part in parts]) for name in parts[0].statistics},
    )


def _join_statistics(parts: Sequence[Statistics]) -> Statistics:
    known = [part for part in parts if part.count and part.mean]
    return merge_statistics(parts, [part.count for part in parts]).model_copy(
        update={
            "nulls": sum(part.nulls for part in parts),
            "min": tuple(map(min, zip(*(part.min for part in known), strict=True))),
            "max": tuple(map(max, zip(*(part.max for part in known), strict=True))),
            "values": _count_values(parts),
        }
    )


def _count_values(parts: Sequence[Statistics]) -> dict[str, int] | None:
    counts: dict[str, int] = {}
    for part in parts:
        if part.values is None:
            return None
        for value, count in part.values.items():
            counts[value] = counts.get(value, 0) + count
    return counts
