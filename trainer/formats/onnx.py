"""ONNX: inputs have the names of the model's columns, outputs those of the prediction's; the rows are free."""

from __future__ import annotations

from pathlib import Path

import torch

from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.formats import program
from trainyard.trainer.model.trained_model import restore_model

FILE = "model.onnx"
PACKAGES = ("onnx", "onnxscript")


def write(model: str, artifact: ModelArtifact, path: Path) -> None:
    applied = restore_model(model, artifact)
    columns = program.example(applied)
    made = torch.onnx.export(
        program.traced(applied), args=(columns,), dynamic_shapes=program.shapes(applied), dynamo=True, verbose=False,
        input_names=list(columns), output_names=list(applied.predict(columns)),
    )  # fmt: skip
    assert made is not None  # it is when torch.onnx writes no file itself
    made.save(path, external_data=False)
