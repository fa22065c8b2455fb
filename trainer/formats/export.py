"""Write a model artifact in other formats; each is a module of this folder.

>>> export("run/digits/model", "onnx", "digits.onnx")

The module of a format has `FILE`, the name of the file or directory beside the weights of a model; `INDEX`, the file
without which nobody reads that directory, "" if it is a file; `PACKAGES`, the packages that it needs beside those of
training; and `write(model, artifact, path)`, which writes the file or directory.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Protocol, cast, get_args

from trainyard import storage
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.retries import replace_file, retry
from trainyard.schemas import model_artifact as artifacts
from trainyard.schemas.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.specs.fields import Format

FORMATS: tuple[str, ...] = get_args(Format)


class _Format(Protocol):
    FILE: str
    INDEX: str
    PACKAGES: tuple[str, ...]

    def write(self, model: str, artifact: ModelArtifact, path: Path) -> None: ...


def export(model: str, format: str, output: str) -> None:
    """Write the current artifact of a model in another format.

    The output appears in one step. An existing file is replaced; an existing directory is an error.

    Args:
        model: The URI of the model.
        format: "onnx", "pt2" or "mlflow".
        output: The URI of the file or directory to write.

    Raises:
        TrainyardError: There is no model, the model cannot be written in the format, or the directory exists.
        UnavailableError: The storage does not answer.
    """
    artifact = artifacts.read_current(model)
    check_formats([format], artifact.inputs)
    _write(model, artifact, format, output)


def write_formats(model: str, artifact: ModelArtifact, formats: Iterable[str]) -> dict[str, str]:
    """Write an artifact in other formats beside its weights, and return their URIs by format.

    Raises:
        TrainyardError: The model cannot be written in one of the formats.
        UnavailableError: The storage does not answer.
    """
    folder = storage.join(model, artifact.folder)
    uris = {name: storage.join(folder, get_format(name).FILE) for name in formats}
    for name, output in uris.items():
        retry(f"remove {output}", partial(storage.remove, output))
        try:
            _write(model, artifact, name, output)
        except UnavailableError:
            raise
        except TrainyardError as error:
            raise TrainyardError(
                f"{error} The trained model is in {folder}; the previous model artifact stays current."
            ) from error
    return uris


def check_formats(formats: Iterable[str], inputs: Iterable[Column]) -> None:
    """Check before training that a model with these inputs can be written in all formats, as far as is known.

    Raises:
        TrainyardError: A format is unknown, its packages are not installed, or an input is a variable-length column.
    """
    for name in formats:
        if name not in FORMATS:
            raise TrainyardError(f"format {name!r} is unknown; write one of {', '.join(FORMATS)}.")
        missing = [package for package in get_format(name).PACKAGES if importlib.util.find_spec(package) is None]
        if missing:
            raise TrainyardError(
                f"format {name!r} needs {' and '.join(missing)}, which this Python environment does not have. "
                "Install airflow-trainyard[formats] where the model is written."
            )
        for column in inputs:
            if column.kind == "list":
                raise TrainyardError(
                    f"format {name!r} does not support the variable-length column {column.name!r}. Remove the format, "
                    "or give all rows one length in prepare.py."
                )


def get_format(name: str) -> _Format:
    """Return the module of a format."""
    return cast(_Format, importlib.import_module(f"trainyard.trainer.formats.{name}"))


def _write(model: str, artifact: ModelArtifact, format: str, output: str) -> None:
    with tempfile.TemporaryDirectory(prefix="trainyard-format-") as folder:
        path = Path(folder, get_format(format).FILE)
        try:
            get_format(format).write(model, artifact, path)
        except TrainyardError:
            raise
        except Exception as error:
            raise TrainyardError(
                f"the model cannot be written as {format}: {type(error).__name__}: {error}."
            ) from error
        _publish(path, get_format(format).INDEX, output)


def _publish(path: Path, index: str, output: str) -> None:
    """Copy a file or directory to the storage, where it appears in one step, or with its index."""
    if path.is_file():
        replace_file(output, path.read_bytes())
        return
    if retry(f"read {output}", partial(storage.exists, output)):
        raise TrainyardError(f"{output} exists already; choose another output, or remove it.")
    if not storage.renames_directories(output):
        files = [file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()]
        for name in sorted(files, key=lambda name: (name == index, name)):
            replace_file(storage.join(output, name), (path / name).read_bytes())
        return
    staged = f"{output.rstrip('/')}.{uuid.uuid4().hex}"
    try:
        for file in path.rglob("*"):
            if file.is_file():
                replace_file(storage.join(staged, file.relative_to(path).as_posix()), file.read_bytes())
        retry(f"rename {staged}", partial(_move, staged, output))
    except BaseException:
        with suppress(Exception):  # the error that is raised has the cause
            storage.remove(staged)
        raise


def _move(source: str, target: str) -> None:
    """Rename a directory in one step, which an attempt whose answer was lost may have done already."""
    if storage.exists(source) or not storage.exists(target):
        storage.move(source, target)
