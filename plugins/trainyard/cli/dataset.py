"""Commands about datasets: `trainyard dataset ...`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterable
from typing import Any

from trainyard.cli import dataset_text
from trainyard.errors import ArgumentError, TrainyardError
from trainyard.schemas.datasets import manifest, versions

_DATASET = "name below the storage root, URI or path of the dataset"
_VERSION = f"{_DATASET}, or of its version, DATASET@12"


def add_commands(commands: Any) -> None:
    """Add the group `dataset` to a parser's commands."""
    group = commands.add_parser("dataset", help="show, verify, compare and expire datasets")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = _action(actions, "show", _show, "print columns, splits, statistics and provenance", _VERSION)
    show.add_argument("--json", action="store_true", help="print the manifest as JSON")
    _action(actions, "verify", _verify, "read every shard and compare its sha256 with the manifest", _VERSION)
    _action(actions, "versions", _versions, "list the versions")
    compare = _action(actions, "compare", _compare, "print what changed between a version and the newest one")
    compare.add_argument("version", type=int, metavar="VERSION", help="the number of the earlier version")
    drop = _action(actions, "drop", _drop, "write a version without a partition; versions before still have it")
    drop.add_argument("partition", metavar="PARTITION", help="the name of the partition")
    expire = _action(actions, "expire", _expire, "remove old versions, and the shards that only they use")
    expire.add_argument("--keep", type=int, required=True, metavar="N", help="how many of the newest versions stay")
    expire.add_argument(
        "--days", type=float, default=7, help="keep versions replaced less than so long ago (default 7)"
    )
    _action(actions, "clean", _clean, "remove files that no version uses; not while a job writes to the dataset")


def _action(actions: Any, name: str, run: Any, help: str, dataset: str = _DATASET) -> Any:
    action = actions.add_parser(name, help=help)
    action.set_defaults(run=run)
    action.add_argument("dataset", metavar="DATASET", help=dataset)
    action.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    return action


def _show(chosen: argparse.Namespace) -> int:
    _, shown = manifest.find(chosen.dataset)
    _print([shown.to_json()] if chosen.json else dataset_text.describe_dataset(shown))
    return 0


def _verify(chosen: argparse.Namespace) -> int:
    from trainyard.etl.datasource.writing import shards

    errors, count = [], 0
    uri, verified = manifest.find(chosen.dataset)
    for split in verified.splits.values():
        for shard in split.shards:
            count += 1
            try:
                shards.verify(uri, shard)
            except TrainyardError as error:
                errors.append(str(error))
    _print([f"verified {count} shards: {len(errors)} bad", *errors])
    return 1 if errors else 0


def _versions(chosen: argparse.Namespace) -> int:
    manifest.read_version(chosen.dataset)
    _print(dataset_text.describe_versions(list(versions.iterate(chosen.dataset))))
    return 0


def _compare(chosen: argparse.Namespace) -> int:
    old, new = manifest.read_version(chosen.dataset, chosen.version), manifest.read_version(chosen.dataset)
    _print([f"version {old.number} -> {new.number}"])
    _print(dataset_text.describe_difference(versions.difference(old, new)))
    return 0


def _drop(chosen: argparse.Namespace) -> int:
    from trainyard.etl.datasource.writing.partitions import remove_partition

    written = remove_partition(chosen.dataset, chosen.partition)
    _print([f"version {written.number} has {written.rows:,} rows, without partition {chosen.partition!r}"])
    return 0


def _expire(chosen: argparse.Namespace) -> int:
    if chosen.keep < 1:
        raise ArgumentError(f"--keep {chosen.keep} is not valid; write 1 or more: the newest always stays.")
    if not 0 <= chosen.days < math.inf:
        raise ArgumentError(f"--days {chosen.days:g} is not valid; write a number of days, 0 or more.")
    manifest.read_version(chosen.dataset)
    expired = versions.expire(chosen.dataset, chosen.keep, chosen.days)
    _print([f"expired {len(expired)} versions: {', '.join(map(str, expired))}"])
    return 0


def _clean(chosen: argparse.Namespace) -> int:
    manifest.read_version(chosen.dataset)
    removed = versions.remove_unreferenced(chosen.dataset)
    _print([f"removed {len(removed)} unreferenced:", *removed])
    return 0


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
