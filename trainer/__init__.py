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
    from trainyard.trainer.formats.export import export
    from trainyard.trainer.loop.fit import FitResult, fit
    from trainyard.trainer.model.recipe import Recipe
    from trainyard.trainer.model.trained_model import TrainedModel, load_model

_MODULES = {
    "Allreduce": "trainyard.schemas.specs.strategies",
    "Averaging": "trainyard.schemas.specs.strategies",
    "Dataset": "trainyard.trainer.data.dataset",
    "DiLoCo": "trainyard.schemas.specs.strategies",
    "FSDP": "trainyard.schemas.specs.strategies",
    "FitResult": "trainyard.trainer.loop.fit",
    "Horovod": "trainyard.schemas.specs.strategies",
    "Portion": "trainyard.trainer.data.mixture",
    "Recipe": "trainyard.trainer.model.recipe",
    "Threshold": "trainyard.schemas.specs.strategies",
    "TrainedModel": "trainyard.trainer.model.trained_model",
    "export": "trainyard.trainer.formats.export",
    "fit": "trainyard.trainer.loop.fit",
    "load_model": "trainyard.trainer.model.trained_model",
}

__all__ = [
    "FSDP",
    "Allreduce",
    "Averaging",
    "Dataset",
    "DiLoCo",
    "FitResult",
    "Horovod",
    "Portion",
    "Recipe",
    "Threshold",
    "TrainedModel",
    "export",
    "fit",
    "load_model",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
