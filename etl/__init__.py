"""Prepare data, evaluate and predict on Spark.

The names below are the public interface. Modules are imported when one of their names is used for the first time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.etl.datasource.source import register
    from trainyard.etl.estimator import TrainyardEstimator, TrainyardModel
    from trainyard.etl.evaluation.evaluate import evaluate
    from trainyard.etl.images import shrink_images
    from trainyard.etl.jobs.featurize import features
    from trainyard.etl.jobs.predict import predict
    from trainyard.etl.scoring.scan import DatasetScan

_MODULES = {
    "DatasetScan": "trainyard.etl.scoring.scan",
    "TrainyardEstimator": "trainyard.etl.estimator",
    "TrainyardModel": "trainyard.etl.estimator",
    "evaluate": "trainyard.etl.evaluation.evaluate",
    "features": "trainyard.etl.jobs.featurize",
    "predict": "trainyard.etl.jobs.predict",
    "register": "trainyard.etl.datasource.source",
    "shrink_images": "trainyard.etl.images",
}

__all__ = [
    "DatasetScan",
    "TrainyardEstimator",
    "TrainyardModel",
    "evaluate",
    "features",
    "predict",
    "register",
    "shrink_images",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
