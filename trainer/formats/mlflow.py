"""An MLflow model: a copy of the bundle with the code that loads it, and no pickle; `mlflow.pyfunc` scores frames.

A tensor column is a list of numbers in each row: the flattened tensor, as in a prediction. What the recipe's
package imports beside torch is not among the requirements: MLflow cannot know it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trainyard import storage
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.data.split_reader import dtype
from trainyard.trainer.formats import code
from trainyard.trainer.model.trained_model import TrainedModel, load_model

FILE = "mlflow"
PACKAGES = ("mlflow",)

_REQUIRED = ("torch", "torchmetrics", "numpy", "pandas", "pyarrow", "pydantic", "fsspec", "safetensors")


class Scorer:
    """What `mlflow.pyfunc` calls with a frame, after it has enforced the signature."""

    def __init__(self, model: TrainedModel) -> None:
        self._model = model

    def predict(self, frame: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        inputs = self._model.artifact.inputs
        return _frame(self._model.predict({c.name: np.array(frame[c.name].tolist(), dtype(c)) for c in inputs}))


def _load_pyfunc(path: str) -> Scorer:
    """MLflow's name for what loads a model."""
    return Scorer(load_model(path))


def write(model: str, artifact: ModelArtifact, path: Path) -> None:
    import mlflow.pyfunc
    from mlflow.models import infer_signature

    data, staged = path.with_name("bundle"), path.with_name("code")
    _copy_bundle(model, artifact, data)
    example = _frame({c.name: np.zeros((2, *c.shape), _widest(dtype(c))) for c in artifact.inputs})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Hint: Inferred schema contains integer")
        signature = infer_signature(example, _load_pyfunc(str(data)).predict(example))
    mlflow.pyfunc.save_model(
        path, loader_module=__name__, data_path=str(data), code_paths=code.copy(artifact.recipe, staged),
        signature=signature, input_example=example,
        pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in ("mlflow-skinny", *_REQUIRED)],
    )  # fmt: skip


def _frame(columns: Mapping[str, NDArray[Any]]) -> pd.DataFrame:
    """Arrays (rows, ...) as a frame: numbers, or lists of the flattened rest."""
    return pd.DataFrame({k: v if v.ndim == 1 else list(v.reshape(len(v), -1)) for k, v in columns.items()})


def _widest(type: np.dtype[Any]) -> np.dtype[Any]:
    """What a caller may give for `type`: MLflow widens numbers, but never narrows them."""
    return np.dtype({"f": "float64", "i": "int64", "u": "int64"}.get(type.kind, type))


def _copy_bundle(model: str, artifact: ModelArtifact, folder: Path) -> None:
    (folder / artifact.weights).parent.mkdir(parents=True)
    (folder / artifact.weights).write_bytes(storage.read(storage.join(model, artifact.weights)))
    (folder / "model.json").write_text(artifact.to_json())
