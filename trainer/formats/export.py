"""A trained bundle as others read it: one format a file, `trainer/formats/NAME.py`.

>>> export("run/digits/model", "onnx", "digits.onnx")

A format's module has `FILE`, its name beside a bundle's weights; `PACKAGES`, what it imports that training does not;
and `write(model, bundle, path)`, which makes a file or a directory of the bundle `bundle` of `model`.
"""

from __future__ import annotations

import importlib
import importlib.util
import tempfile
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, cast, get_args

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import model_artifact as bundles
from trainyard.schemas.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.specs.fields import Format

FORMATS: tuple[str, ...] = get_args(Format)


class _Format(Protocol):
    FILE: str
    PACKAGES: tuple[str, ...]

    def write(self, model: str, artifact: ModelArtifact, path: Path) -> None: ...


def export(model: str, format: str, output: str) -> None:
    """Write the current bundle at `model` in `format` to `output`, which appears whole or not at all.

    A file that is there is replaced; a directory is not. Raises TrainyardError.
    """
    bundle = bundles.read_current(model)
    check([format], bundle.inputs)
    _write(model, bundle, format, output)


def beside(model: str, artifact: ModelArtifact, formats: Iterable[str]) -> dict[str, str]:
    """Write `bundle` in each of `formats` beside its weights; the URIs, by format. Raises TrainyardError."""
    folder = storage.join(model, artifact.weights.rpartition("/")[0])
    written = {name: storage.join(folder, _format(name).FILE) for name in formats}
    for name, output in written.items():
        storage.remove(output)
        try:
            _write(model, artifact, name, output)
        except TrainyardError as error:
            raise TrainyardError(
                f"{error} What was trained lies in {folder}; the bundle before stays current."
            ) from error
    return written


def check(formats: Iterable[str], inputs: Iterable[Column]) -> None:
    """Raises TrainyardError when a model of these columns cannot be written in one of `formats`, as far as is known."""
    for name in formats:
        if name not in FORMATS:
            raise TrainyardError(f"format {name!r} is unknown; write one of {', '.join(FORMATS)}.")
        missing = [package for package in _format(name).PACKAGES if importlib.util.find_spec(package) is None]
        if missing:
            raise TrainyardError(
                f"format {name!r} needs {' and '.join(missing)}, which this Python does not have. "
                "Install airflow-trainyard[formats] where the model is written."
            )
        for column in inputs:
            if column.kind == "list":
                raise TrainyardError(
                    f"format {name!r}: the rows of column {column.name!r} differ in length, which no format but the "
                    "bundle has a place for. Leave it out, or give them one length in prepare.py."
                )


def _format(name: str) -> _Format:
    return cast(_Format, importlib.import_module(f"trainyard.trainer.formats.{name}"))


def _write(model: str, artifact: ModelArtifact, format: str, output: str) -> None:
    with tempfile.TemporaryDirectory(prefix="trainyard-format-") as folder:
        made = Path(folder, _format(format).FILE)
        try:
            _format(format).write(model, artifact, made)
        except TrainyardError:
            raise
        except Exception as error:
            raise TrainyardError(
                f"the model cannot be written as {format}: {type(error).__name__}: {error}."
            ) from error
        _publish(made, output)


def _publish(made: Path, output: str) -> None:
    if made.is_file():
        storage.replace(output, made.read_bytes())
        return
    if storage.exists(output):
        raise TrainyardError(f"{output} exists already; choose another place, or remove it.")
    staged = f"{output.rstrip('/')}.{uuid.uuid4().hex}"
    try:
        for file in made.rglob("*"):
            if file.is_file():
                storage.replace(storage.join(staged, file.relative_to(made).as_posix()), file.read_bytes())
        storage.move(staged, output)
    finally:
        storage.remove(staged)
