"""Commands about models: `trainyard model ...`."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact
from trainyard.schemas.specs.fields import Format


def add_commands(commands: Any) -> None:
    """Add the group `model` to a parser's commands."""
    group = commands.add_parser("model", help="show models, and write them in other formats")
    actions = group.add_subparsers(title="actions", metavar="ACTION", required=True)
    show = actions.add_parser("show", help="print the model card")
    show.set_defaults(run=_show)
    export = actions.add_parser("export", help="write the current model as ONNX, torch.export or MLflow")
    export.set_defaults(run=_export)
    for action in (show, export):
        action.add_argument("model", metavar="MODEL", help="name below the storage root, URI or path of the model")
        action.add_argument("--conn-id", default="trainyard_default", help="connection with the storage")
    export.add_argument("format", choices=get_args(Format), help="the format to write")
    export.add_argument("output", metavar="OUTPUT", help="URI or path to write: a file, or for mlflow a directory")
    export.add_argument("--dags-folder", help="folder with the model's recipe; default: Airflow's DAGs folder")


def _show(chosen: argparse.Namespace) -> int:
    artifact = model_artifact.read_current(chosen.model)
    print(storage.read(storage.join(chosen.model, artifact.folder, "card.md")).decode())
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
