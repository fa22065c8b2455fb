"""Commands about datasets: `trainyard dataset ...`."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from trainyard.cli import dataset_text
from trainyard.cli.confirmation import add_confirmation, is_confirmed
from trainyard.cli.output import NOT_PRODUCTS, add_output, show, show_rows, show_unreadable
from trainyard.errors import ArgumentError, TrainyardError, noted
from trainyard.files import storage
from trainyard.schemas.datasets import manifest, versions

_DATASET = "name below the storage root, URI or path of the dataset"
_VERSION = f"{_DATASET}, or of its version, DATASET@12"


def add_commands(commands: Any) -> None:
    """Add the group `dataset` to a parser's commands."""
    group = commands.add_parser("dataset", help="list, show, verify, compare and expire datasets")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the datasets in a storage")
    listing.set_defaults(run=_list)
    listing.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    shown = _action(actions, "show", _show, "print columns, splits, statistics and provenance", _VERSION)
    _action(actions, "verify", _verify, "read every shard and compare its sha256 with the manifest", _VERSION)
    versioned = _action(actions, "versions", _versions, "list the versions")
    diff = _action(actions, "diff", _diff, "print what changed from one version to another", _VERSION)
    diff.add_argument("other", metavar="OTHER", nargs="?", help="the later version (default: the newest of the same)")
    for action in (listing, shown, versioned, diff):
        add_output(action)
    drop = _action(actions, "drop", _drop, "write a version without a partition; versions before still have it")
    drop.add_argument("partition", metavar="PARTITION", help="the name of the partition")
    expire = _action(actions, "expire", _expire, "remove old versions, and the shards that only they use")
    expire.add_argument("--keep", type=int, required=True, metavar="N", help="how many of the newest versions stay")
    expire.add_argument(
        "--days", type=float, default=7, help="keep versions replaced less than so long ago (default 7)"
    )
    clean = _action(actions, "clean", _clean, "remove files that no version uses; not while a job writes to it")
    for action in (drop, expire, clean):
        add_confirmation(action)


def _action(actions: Any, name: str, run: Any, help: str, dataset: str = _DATASET) -> Any:
    action = actions.add_parser(name, help=help)
    action.set_defaults(run=run)
    action.add_argument("dataset", metavar="DATASET", help=dataset)
    action.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    return action


def list_datasets(root: str, unreadable: dict[str, str]) -> list[dict[str, Any]]:
    """Return a row for each dataset below a storage root; note those that are `unreadable`."""
    rows = []
    for uri in storage.find_directories(root, "manifest.json", NOT_PRODUCTS):
        name = uri.removeprefix(f"{root.rstrip('/')}/")
        with noted(unreadable, name):
            one = manifest.read_current(uri)
            splits = {split: part.rows for split, part in one.splits.items()}
            rows.append(
                {"dataset": name, "version": one.number, "rows": one.rows, "splits": splits,
                 "partitions": len(one.partitions), "written": one.provenance.written_at}
            )  # fmt: skip
    return rows


def _list(chosen: argparse.Namespace) -> int:
    from trainyard.hooks.trainyard import TrainyardHook

    root, unreadable = TrainyardHook(chosen.conn_id).get_conn().storage, dict[str, str]()
    show_rows(chosen, list_datasets(root, unreadable), "There is no dataset.")
    return show_unreadable(unreadable)


def _show(chosen: argparse.Namespace) -> int:
    _, found = manifest.find(chosen.dataset)
    show(chosen, json.loads(found.to_json()), lambda: "\n".join(dataset_text.describe_dataset(found)))
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
    print("\n".join([f"verified {count} shards: {len(errors)} bad", *errors]))
    return 1 if errors else 0


def _versions(chosen: argparse.Namespace) -> int:
    manifest.read_version(chosen.dataset)
    listed = list(versions.iterate(chosen.dataset))
    fields = {"number", "content_hash", "partitions", "provenance"}
    value = [{"rows": version.rows} | version.model_dump(mode="json", include=fields) for version in listed]
    show(chosen, value, lambda: "\n".join(dataset_text.describe_versions(listed)))
    return 0


def _diff(chosen: argparse.Namespace) -> int:
    uri, old = manifest.find(chosen.dataset)
    _, new = manifest.find(chosen.other or uri)
    difference = versions.difference(old, new)

    def describe() -> str:
        return "\n".join([f"version {old.number} -> {new.number}", *dataset_text.describe_difference(difference)])

    show(chosen, {"old": old.number, "new": new.number} | vars(difference), describe)
    return 0


def _drop(chosen: argparse.Namespace) -> int:
    from trainyard.etl.datasource.writing.partitions import check_removal, remove_partition

    check_removal(manifest.read_current(chosen.dataset), chosen.dataset, chosen.partition)
    if not is_confirmed(chosen, f"Write a version of {chosen.dataset} without partition {chosen.partition!r}"):
        return 0
    written = remove_partition(chosen.dataset, chosen.partition)
    print(f"version {written.number} has {written.rows:,} rows, without partition {chosen.partition!r}")
    return 0


def _expire(chosen: argparse.Namespace) -> int:
    if chosen.keep < 1:
        raise ArgumentError(f"--keep {chosen.keep} is not valid; write 1 or more: the newest always stays.")
    if not 0 <= chosen.days < math.inf:
        raise ArgumentError(f"--days {chosen.days:g} is not valid; write a number of days, 0 or more.")
    manifest.read_version(chosen.dataset)
    old = versions.list_old(chosen.dataset, chosen.keep, chosen.days)
    if not old:
        print("No version is old enough.")
    elif is_confirmed(chosen, f"Remove {len(old)} versions: {', '.join(map(str, old))}"):
        expired = versions.expire(chosen.dataset, chosen.keep, chosen.days)
        print(f"expired {len(expired)} versions: {', '.join(map(str, expired))}")
    return 0


def _clean(chosen: argparse.Namespace) -> int:
    manifest.read_version(chosen.dataset)
    paths = versions.unreferenced(chosen.dataset)
    print("\n".join([f"{len(paths)} unreferenced:", *paths]) if paths else "No file is unreferenced.")
    if paths and is_confirmed(chosen, f"Remove {len(paths)} paths"):
        removed = versions.remove_unreferenced(chosen.dataset)
        print(f"removed {len(removed)} unreferenced")
    return 0
