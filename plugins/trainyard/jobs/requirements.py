"""What each kind of job needs on the nodes by default: Python modules and memory."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.planning.sizing import Memory


@dataclass(frozen=True)
class Requirements:
    """The needs of one kind of job.

    Attributes:
        modules: What the job's Python imports on the nodes, beside Spark and the user's code.
        memory: The default memory of an executor.
        driver_memory: The default memory of the driver.
    """

    modules: tuple[str, ...]
    memory: Memory
    driver_memory: Memory


_SPARK_MODULES = ("fsspec", "numpy", "pandas", "pyarrow", "pydantic")
_MODEL_MODULES = (*_SPARK_MODULES, "safetensors", "tenacity", "torch")
_SMALL = Memory(heap="1g", native="512m")
_WITH_TORCH = Memory(heap="1g", native="1536m")
_WORKER = Memory(heap="512m", native="2g")

SPARK = Requirements(_SPARK_MODULES, _SMALL, _SMALL)
FEATURIZE = Requirements(_MODEL_MODULES, _WITH_TORCH, _WITH_TORCH)
PREDICT = FEATURIZE
EVALUATE = Requirements((*_MODEL_MODULES, "torchmetrics"), _WITH_TORCH, _WITH_TORCH)
TRAIN = Requirements(("fsspec", "numpy", "pyarrow", "pydantic", "safetensors", "tenacity", "torch"), _WORKER, _SMALL)
SCRIPT = Requirements(("fsspec", "pydantic", "tenacity", "torch"), _WORKER, _SMALL)
