"""Write a model artifact in other formats; each is a module of this folder.

>>> export("run/digits/model", "onnx", "digits.onnx")

The module of a format has `FILE`, the name of the file or directory beside the weights of a model; `INDEX`, the file
without which nobody reads that directory, "" if it is a file; `PACKAGES`, the packages that it needs beside those of
training; `write(model, artifact, path)`, which writes the file or directory; and `predict(path, columns)`, which
applies it to rows.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import tempfile
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast, get_args

from numpy.typing import NDArray

from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import storage, uris
from trainyard.files.retries import replace_file, retry
from trainyard.schemas import model_artifact as artifacts
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.schemas.specs.fields import Format
from trainyard.trainer.verification.check import Prediction
from trainyard.trainer.verification.differences import measure_difference

Array = NDArray[Any]
TOLERANCE = 1e-2
"""The norm of the difference of two predictions, relative to that of one, that the kernels of a format may cause."""
FORMATS: tuple[str, ...] = get_args(Format)


class _Format(Protocol):
    FILE: str
    INDEX: str
    PACKAGES: tuple[str, ...]

    def write(self, model: str, artifact: ModelArtifact, path: Path) -> None: ...

    def predict(self, path: Path, columns: Mapping[str, Array]) -> Mapping[str, Array]: ...


def export(model: str, format: str, output: str) -> None:
    """Write a model in another format.

    The output appears in one step. An existing file is replaced; an existing directory is an error.

    Args:
        model: The URI of the model; `MODEL@1a2b` is the version whose weights have a sha256 that begins so.
        format: "onnx", "pt2" or "mlflow".
        output: The URI of the file or directory to write.

    Raises:
        TrainyardError: There is no model, the model cannot be written in the format, or the directory exists.
        UnavailableError: The storage does not answer.
    """
    uri, artifact = artifacts.find(model)
    check_formats([format], artifact.inputs)
    _write(uri, artifact, format, output)


def write_formats(
    model: str, artifact: ModelArtifact, formats: Iterable[str], example: Prediction | None = None
) -> dict[str, str]:
    """Write an artifact in other formats beside its weights, and return their URIs by format.

    Args:
        model: The URI of the model.
        artifact: The artifact.
        formats: The names of the formats.
        example: Rows for which each format must predict the same, within `TOLERANCE`, before it is published.

    Raises:
        TrainyardError: The model cannot be written in one of the formats, or predicts something else there.
        UnavailableError: The storage does not answer.
    """
    folder = uris.join(model, artifact.folder)
    outputs = {name: uris.join(folder, get_format(name).FILE) for name in formats}
    for name, output in outputs.items():
        retry(f"remove {output}", partial(storage.remove, output))
        try:
            _write(model, artifact, name, output, example)
        except UnavailableError:
            raise
        except TrainyardError as error:
            raise TrainyardError(
                f"{error} The trained model is in {folder}; the previous model artifact stays current."
            ) from error
    return outputs


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


def _write(model: str, artifact: ModelArtifact, format: str, output: str, example: Prediction | None = None) -> None:
    with tempfile.TemporaryDirectory(prefix="trainyard-format-") as folder:
        path = Path(folder, get_format(format).FILE)
        try:
            get_format(format).write(model, artifact, path)
            if example:
                _compare(format, get_format(format).predict(path, example.columns), example)
        except TrainyardError:
            raise
        except Exception as error:
            raise TrainyardError(
                f"the model cannot be written as {format}: {type(error).__name__}: {error}."
            ) from error
        _publish(path, get_format(format).INDEX, output)


def _compare(format: str, prediction: Mapping[str, Array], example: Prediction) -> None:
    for name, expected in example.prediction.items():
        values = prediction.get(name)
        difference = math.inf if values is None else measure_difference(expected, values.reshape(expected.shape))
        if difference > TOLERANCE:
            raise TrainyardError(
                f"the model written as {format} does not compute what the trained one does: on {len(expected)} rows, "
                f"column {name!r} differs by {difference:.2g} of its norm, {TOLERANCE:g} may be rounding. Branch in "
                "forward and predict on the shapes of tensors and on parameters only, or remove the format."
            )


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
            replace_file(uris.join(output, name), (path / name).read_bytes())
        return
    staged = f"{output.rstrip('/')}.{uuid.uuid4().hex}"
    try:
        for file in path.rglob("*"):
            if file.is_file():
                replace_file(uris.join(staged, file.relative_to(path).as_posix()), file.read_bytes())
        retry(f"rename {staged}", partial(_move, staged, output))
    except BaseException:
        with suppress(Exception):  # the error that is raised has the cause
            storage.remove(staged)
        raise


def _move(source: str, target: str) -> None:
    """Rename a directory in one step, which an attempt whose answer was lost may have done already."""
    if storage.exists(source) or not storage.exists(target):
        storage.move(source, target)
