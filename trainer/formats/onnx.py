"""ONNX: inputs have the names of the model's columns, outputs those of the prediction's; any number of rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.formats import program
from trainyard.trainer.model.artifacts.trained_model import restore_model

FILE = "model.onnx"
INDEX = ""
PACKAGES = ("onnx", "onnxscript")


def write(model: str, artifact: ModelArtifact, path: Path) -> None:
    """Write the model to the file `path`."""
    trained = restore_model(model, artifact)
    columns = program.build_example(trained)
    onnx_program = torch.onnx.export(
        program.trace(trained), args=(columns,), dynamic_shapes=program.build_shapes(trained), dynamo=True,
        verbose=False, input_names=list(columns), output_names=list(trained.predict(columns)),
    )  # fmt: skip
    assert onnx_program is not None  # it is None only when torch.onnx writes a file itself
    onnx_program.save(path, external_data=False)


def predict(path: Path, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the predictions of the file `path` for some rows: by onnxruntime, or by the reference of the format."""
    try:
        from onnxruntime import InferenceSession  # type: ignore[import-untyped]
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(str(path))
        return dict(zip(evaluator.output_names, evaluator.run(None, dict(columns)), strict=True))
    session = InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(columns)), strict=True))
