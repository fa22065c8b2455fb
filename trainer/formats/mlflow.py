"""MLflow: a copy of the model artifact and of the code that loads it, without a pickle, for `mlflow.pyfunc`.

A tensor column is a list of numbers in each row: the flattened tensor, as in a prediction. The requirements of the
MLflow model do not include what the recipe's package imports beside torch: nothing declares these packages.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from trainyard.files import uris
from trainyard.files.retries import read_file
from trainyard.schemas.datasets import fitted_state
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.data.reading.blocks import dtype
from trainyard.trainer.formats import code
from trainyard.trainer.model.artifacts.trained_model import TrainedModel, load_model

FILE = "mlflow"
INDEX = "MLmodel"
PACKAGES = ("mlflow",)

_REQUIREMENTS = ("torch", "torchmetrics", "numpy", "pandas", "pyarrow", "pydantic", "fsspec", "safetensors", "tenacity")


class Scorer:
    """The model that `mlflow.pyfunc` calls with a frame, after it has enforced the signature."""

    def __init__(self, model: TrainedModel) -> None:
        self._model = model

    def predict(self, frame: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Return the predictions of the rows of `frame`."""
        inputs = self._model.artifact.inputs
        return _to_frame(self._model.predict({c.name: np.array(frame[c.name].tolist()) for c in inputs}, names=False))


def _load_pyfunc(path: str) -> Scorer:
    """Load a model; MLflow requires this name."""
    return Scorer(load_model(path))


def write(model: str, artifact: ModelArtifact, path: Path) -> None:
    """Write the MLflow model to the directory `path`."""
    import mlflow.pyfunc
    from mlflow.models import infer_signature

    data, staged = path.with_name("artifact"), path.with_name("code")
    _copy_artifact(model, artifact, data)
    example = _to_frame({c.name: np.zeros((2, *c.shape), _widen(dtype(c))) for c in artifact.inputs})
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Hint: Inferred schema contains integer")
        signature = infer_signature(example, _load_pyfunc(str(data)).predict(example))
    mlflow.pyfunc.save_model(
        path, loader_module=__name__, data_path=str(data), code_paths=code.copy(artifact.recipes, staged),
        signature=signature, input_example=example,
        pip_requirements=[f"{name}=={version(name).partition('+')[0]}" for name in ("mlflow-skinny", *_REQUIREMENTS)],
    )  # fmt: skip


def predict(path: Path, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the predictions of the MLflow model at `path` for some rows, flattened to (rows, elements)."""
    from mlflow.models import Model
    from mlflow.pyfunc import PyFuncModel

    # MLflow's own load_model would add the code beside the model to the path of this process.
    saved = Model.load(str(path))
    scorer = _load_pyfunc(str(path / saved.flavors["python_function"]["data"]))
    frame: Any = PyFuncModel(saved, scorer).predict(_to_frame(columns))
    return {name: np.stack([*frame[name].to_numpy()]) for name in frame}


def _to_frame(columns: Mapping[str, NDArray[Any]]) -> pd.DataFrame:
    """Return arrays (rows, ...) as a frame: numbers, or lists of the flattened rest."""
    return pd.DataFrame(
        {k: v if v.ndim == 1 else list(v.reshape(len(v), math.prod(v.shape[1:]))) for k, v in columns.items()}
    )


def _widen(type: np.dtype[Any]) -> np.dtype[Any]:
    """Return the widest type of a signature that accepts `type`: MLflow widens numbers, but never narrows them."""
    return np.dtype({"f": "float64", "i": "int64", "u": "int64"}.get(type.kind, type))


def _copy_artifact(model: str, artifact: ModelArtifact, folder: Path) -> None:
    for file in artifact.weights:
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes(read_file(uris.join(model, file.path)))
    if artifact.fitted:
        copied = f"{artifact.folder}/{fitted_state.FILE}"
        (folder / copied).write_bytes(read_file(uris.join(model, copied)))
    (folder / "model.json").write_text(artifact.to_json())
