"""ONNX: inputs have the names of the model's columns, outputs those of the prediction's; any number of rows."""

from __future__ import annotations

from pathlib import Path

import torch

from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.formats import program
from trainyard.trainer.model.trained_model import restore_model

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
