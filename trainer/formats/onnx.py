"""ONNX: inputs have the names of the model's columns, outputs those of the prediction's; the rows are free."""

from __future__ import annotations

from pathlib import Path

import torch

from trainer import bundle as trained
from trainer.formats import program
from trainyard.contract.bundle import ModelBundle

FILE = "model.onnx"
PACKAGES = ("onnx", "onnxscript")


def write(model: str, bundle: ModelBundle, path: Path) -> None:
    applied = trained.restore(model, bundle)
    columns = program.example(applied)
    made = torch.onnx.export(
        program.traced(applied), args=(columns,), dynamic_shapes=program.shapes(applied), dynamo=True, verbose=False,
        input_names=list(columns), output_names=list(applied.predict(columns)),
    )  # fmt: skip
    assert made is not None  # it is when torch.onnx writes no file itself
    made.save(path, external_data=False)
