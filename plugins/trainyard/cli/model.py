"""Commands about models: `trainyard model ...`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from trainyard.cli.output import NOT_PRODUCTS, add_output, show, show_rows, show_unreadable
from trainyard.errors import ArgumentError, TrainyardError, noted
from trainyard.files import storage, uris
from trainyard.schemas import model_artifact
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.specs.fields import Format
from trainyard.schemas.version_suffix import split_version

_MODEL = "name below the storage root, URI or path of the model"
_OF_WEIGHTS = re.compile(r"(^|\.artifact\.)weights\b")
"""The paths of the files of weights, of a model or of a member of an ensemble."""
PROMOTED = {"promoted": "promoted_at", "why": "why"}
"""The columns of a version about its promotion, and the fields that they have."""


def add_commands(commands: Any) -> None:
    """Add the group `model` to a parser's commands."""
    group = commands.add_parser("model", help="list, show and compare models, and write them in other formats")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list the models in a storage")
    listing.set_defaults(run=_list)
    card = actions.add_parser("show", help="print the model card")
    card.set_defaults(run=_show)
    listed = actions.add_parser("versions", help="list the versions, and when and why each became the champion")
    listed.set_defaults(run=_versions)
    diff = actions.add_parser("diff", help="print what differs between two models, or versions of one")
    diff.set_defaults(run=_diff)
    back = actions.add_parser("rollback", help="make an earlier champion the champion again")
    back.set_defaults(run=_rollback)
    export = actions.add_parser("export", help="write a model as ONNX, torch.export or MLflow")
    export.set_defaults(run=_export)
    for action in (card, diff, export):
        action.add_argument("model", metavar="MODEL", help=f"{_MODEL}, or of a version of it, MODEL@1a2b")
    listed.add_argument("model", metavar="MODEL", help=_MODEL)
    back.add_argument("model", metavar="CHAMPION@VERSION", help="the champion, and the beginning of its version")
    diff.add_argument("other", metavar="OTHER", nargs="?", help="the other model (default: its newest version)")
    for action in (listing, card, listed, diff, back, export):
        action.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    for action in (listing, card, listed, diff):
        add_output(action)
    export.add_argument("format", choices=get_args(Format), help="the format to write")
    export.add_argument("output", metavar="OUTPUT", help="URI or path to write: a file, or for mlflow a directory")
    export.add_argument("--dags-folder", help="folder with the model's recipe; default: Airflow's DAGs folder")


def list_models(root: str, unreadable: dict[str, str]) -> list[dict[str, Any]]:
    """Return a row for each model below a storage root; note those that are `unreadable`."""
    rows = []
    for uri in storage.find_directories(root, "model.json", NOT_PRODUCTS):
        name = uri.removeprefix(f"{root.rstrip('/')}/")
        with noted(unreadable, name):
            rows.append({"model": name} | _describe(model_artifact.read_current(uri)))
    return rows


def compare(old: ModelArtifact, new: ModelArtifact) -> list[dict[str, Any]]:
    """Return a row for each value that differs between two models, named by its path; without files of weights."""
    one, other = (dict(_flatten(artifact.model_dump(mode="json"))) for artifact in (old, new))
    known = [path for path in dict.fromkeys([*one, *other]) if not _OF_WEIGHTS.search(path)]
    paths = [path for path in known if one.get(path) != other.get(path)]
    return [{"field": path, "old": one.get(path), "new": other.get(path)} for path in paths]


def _list(chosen: argparse.Namespace) -> int:
    from trainyard.hooks.trainyard import TrainyardHook

    unreadable: dict[str, str] = {}
    show_rows(chosen, list_models(TrainyardHook(chosen.conn_id).get_conn().storage, unreadable), "There is no model.")
    return show_unreadable(unreadable)


def _show(chosen: argparse.Namespace) -> int:
    uri, artifact = model_artifact.find(chosen.model)
    card = storage.read(uris.join(uri, artifact.folder, "card.md")).decode()
    show(chosen, json.loads(artifact.to_json()), lambda: card)
    return 0


def _versions(chosen: argparse.Namespace) -> int:
    from trainyard.models.promotion import list_promotions

    current = model_artifact.read_current(chosen.model).folder
    promotions = {one.weights_sha256[:16]: one for one in list_promotions(chosen.model)}
    versions = [model_artifact.read_version(chosen.model, name) for name in model_artifact.list_versions(chosen.model)]
    rows = []
    for version in sorted(versions, key=lambda version: version.written_at):
        promotion = promotions.get(version.folder)
        promoted = {name: getattr(promotion, field, None) for name, field in PROMOTED.items()}
        rows.append({**_describe(version), "current": version.folder == current, **promoted})
    show_rows(chosen, rows, "There is no version.")
    return 0


def _diff(chosen: argparse.Namespace) -> int:
    uri, old = model_artifact.find(chosen.model)
    _, new = model_artifact.find(chosen.other or uri)
    show_rows(chosen, compare(old, new), "They do not differ.")
    return 0


def _describe(artifact: ModelArtifact) -> dict[str, Any]:
    """Return the part of a row that a model and each of its versions have."""
    return {
        "version": artifact.folder, "trained": artifact.written_at, "metrics": artifact.metrics,
        "recipe": artifact.recipe, "dataset": f"{artifact.dataset}@{artifact.dataset_version}",
    }  # fmt: skip


def _flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values inside an object of JSON, each with its path; a list of numbers or texts is one value."""
    if isinstance(value, list) and any(isinstance(part, dict) for part in value):
        value = {str(number): part for number, part in enumerate(value)}
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _flatten(part, f"{path}.{name}" if path else name)
    else:
        yield path, value


def _rollback(chosen: argparse.Namespace) -> int:
    from trainyard.models.promotion import roll_back

    uri, version = split_version(chosen.model)
    if version is None:
        raise ArgumentError(f"{uri} names no version; write {uri}@ and the beginning of one that `versions` lists.")
    promoted = roll_back(uri, version)
    print(f"{uri} has the version {promoted.weights_sha256[:16]} of {promoted.model}: {promoted.why}")
    return 0


def _export(chosen: argparse.Namespace) -> int:
    from trainyard.trainer.formats.export import export

    if folder := chosen.dags_folder or _dags_folder():
        sys.path.append(str(Path(folder).resolve()))
    try:
        export(chosen.model, chosen.format, chosen.output)
    except TrainyardError as error:
        if isinstance(error.__cause__, ModuleNotFoundError):
            raise TrainyardError(f"{error} If it is in a folder of DAGs, write the folder as --dags-folder.") from error
        raise
    return 0


def _dags_folder() -> str | None:
    """Return Airflow's DAGs folder, None without Airflow."""
    if not find_spec("airflow"):
        return None
    from airflow import settings

    return str(settings.DAGS_FOLDER)
