"""Train PyTorch models: in one process, under torchrun, or as a group of workers on Spark.

The names below are the public interface. Modules are imported when one of their names is used for the first time, as in
`airflow.sdk`, because drivers and Spark workers need only a few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.schemas.specs.strategies import FSDP, Allreduce, Averaging, DiLoCo, Horovod, Threshold
    from trainyard.trainer.data.dataset import Dataset
    from trainyard.trainer.data.mixture import Portion
    from trainyard.trainer.data.reading.images import CenterCrop, RandomResizedCrop, decode_gray, decode_rgb
    from trainyard.trainer.formats.export import export
    from trainyard.trainer.loop.fit import FitResult, fit
    from trainyard.trainer.measuring.tracking import MLflow, TensorBoard
    from trainyard.trainer.model.artifacts.trained_model import TrainedModel, load_model
    from trainyard.trainer.model.heads import Head
    from trainyard.trainer.model.integrations.datamodule import TrainyardDataModule as TrainyardDataModule
    from trainyard.trainer.model.integrations.lightning import from_lightning
    from trainyard.trainer.model.integrations.transformers import TrainyardTrainer as TrainyardTrainer
    from trainyard.trainer.model.recipe import Recipe
    from trainyard.trainer.run.batch import Batch
    from trainyard.trainer.run.run import Run
    from trainyard.trainer.scripts.reporting import report_metrics, store_checkpoints
    from trainyard.trainer.strategies.base import Strategy

_MODULES = {
    "Allreduce": "trainyard.schemas.specs.strategies",
    "Averaging": "trainyard.schemas.specs.strategies",
    "Batch": "trainyard.trainer.run.batch",
    "CenterCrop": "trainyard.trainer.data.reading.images",
    "Dataset": "trainyard.trainer.data.dataset",
    "DiLoCo": "trainyard.schemas.specs.strategies",
    "FSDP": "trainyard.schemas.specs.strategies",
    "FitResult": "trainyard.trainer.loop.fit",
    "Head": "trainyard.trainer.model.heads",
    "Horovod": "trainyard.schemas.specs.strategies",
    "MLflow": "trainyard.trainer.measuring.tracking",
    "Portion": "trainyard.trainer.data.mixture",
    "RandomResizedCrop": "trainyard.trainer.data.reading.images",
    "Recipe": "trainyard.trainer.model.recipe",
    "Run": "trainyard.trainer.run.run",
    "Strategy": "trainyard.trainer.strategies.base",
    "TensorBoard": "trainyard.trainer.measuring.tracking",
    "Threshold": "trainyard.schemas.specs.strategies",
    "TrainedModel": "trainyard.trainer.model.artifacts.trained_model",
    "TrainyardDataModule": "trainyard.trainer.model.integrations.datamodule",
    "TrainyardTrainer": "trainyard.trainer.model.integrations.transformers",
    "decode_gray": "trainyard.trainer.data.reading.images",
    "decode_rgb": "trainyard.trainer.data.reading.images",
    "export": "trainyard.trainer.formats.export",
    "fit": "trainyard.trainer.loop.fit",
    "from_lightning": "trainyard.trainer.model.integrations.lightning",
    "load_model": "trainyard.trainer.model.artifacts.trained_model",
    "report_metrics": "trainyard.trainer.scripts.reporting",
    "store_checkpoints": "trainyard.trainer.scripts.reporting",
}

__all__ = [
    "FSDP",
    "Allreduce",
    "Averaging",
    "Batch",
    "CenterCrop",
    "Dataset",
    "DiLoCo",
    "FitResult",
    "Head",
    "Horovod",
    "MLflow",
    "Portion",
    "RandomResizedCrop",
    "Recipe",
    "Run",
    "Strategy",
    "TensorBoard",
    "Threshold",
    "TrainedModel",
    "decode_gray",
    "decode_rgb",
    "export",
    "fit",
    "from_lightning",
    "load_model",
    "report_metrics",
    "store_checkpoints",
]
"""The names that `import *` imports: all but TrainyardDataModule and TrainyardTrainer, which need other packages."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
