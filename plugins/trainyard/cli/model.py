"""Commands about models: `trainyard model ...`."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from trainyard.errors import ArgumentError, TrainyardError
from trainyard.files import storage, uris
from trainyard.schemas import model_artifact
from trainyard.schemas.specs.fields import Format
from trainyard.schemas.version_suffix import split_version
from trainyard.text import table

_MODEL = "name below the storage root, URI or path of the model"


def add_commands(commands: Any) -> None:
    """Add the group `model` to a parser's commands."""
    group = commands.add_parser("model", help="show models, and write them in other formats")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print the model card")
    show.set_defaults(run=_show)
    listed = actions.add_parser("versions", help="list the versions, and when and why each became the champion")
    listed.set_defaults(run=_versions)
    back = actions.add_parser("rollback", help="make an earlier champion the champion again")
    back.set_defaults(run=_rollback)
    export = actions.add_parser("export", help="write a model as ONNX, torch.export or MLflow")
    export.set_defaults(run=_export)
    for action in (show, export):
        action.add_argument("model", metavar="MODEL", help=f"{_MODEL}, or of a version of it, MODEL@1a2b")
    listed.add_argument("model", metavar="MODEL", help=_MODEL)
    back.add_argument("model", metavar="CHAMPION@VERSION", help="the champion, and the beginning of its version")
    for action in (show, listed, back, export):
        action.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    export.add_argument("format", choices=get_args(Format), help="the format to write")
    export.add_argument("output", metavar="OUTPUT", help="URI or path to write: a file, or for mlflow a directory")
    export.add_argument("--dags-folder", help="folder with the model's recipe; default: Airflow's DAGs folder")


def _show(chosen: argparse.Namespace) -> int:
    uri, artifact = model_artifact.find(chosen.model)
    print(storage.read(uris.join(uri, artifact.folder, "card.md")).decode())
    return 0


def _versions(chosen: argparse.Namespace) -> int:
    from trainyard.operators.promotion import list_promotions

    current = model_artifact.read_current(chosen.model).folder
    promotions = {one.weights_sha256[:16]: one for one in list_promotions(chosen.model)}
    versions = [model_artifact.read_version(chosen.model, name) for name in model_artifact.list_versions(chosen.model)]
    rows = []
    for version in sorted(versions, key=lambda version: version.written_at):
        promotion = promotions.get(version.folder)
        promoted = [promotion.promoted_at, promotion.why] if promotion else ["", ""]
        metrics = ", ".join(f"{name} {value:.4g}" for name, value in version.metrics.items())
        mark = "current" if version.folder == current else ""
        rows.append([version.folder, mark, version.written_at, f"@{version.dataset_version}", metrics, *promoted])
    print(table(["version", "", "trained", "dataset", "metrics", "promoted", "why"], rows))
    return 0


def _rollback(chosen: argparse.Namespace) -> int:
    from trainyard.operators.promotion import roll_back

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
