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
        daemon: The module of a process that Spark may fork Python workers from, which imports what they need once;
            None for Spark's own.
    """

    modules: tuple[str, ...]
    memory: Memory
    driver_memory: Memory
    daemon: str | None = None


_SPARK_MODULES = ("fsspec", "numpy", "pandas", "pyarrow", "pydantic", "tenacity")
_MODEL_MODULES = (*_SPARK_MODULES, "safetensors", "torch")
_EVALUATE_MODULES = (*_MODEL_MODULES, "torchmetrics")
_SCRIPT_MODULES = ("fsspec", "psutil", "pydantic", "tenacity", "torch")
_TRAIN_MODULES = ("fsspec", "numpy", "psutil", "pyarrow", "pydantic", "safetensors", "tenacity", "torch")
_SMALL = Memory(heap="1g", native="512m")
_WITH_TORCH = Memory(heap="1g", native="1536m")
_WORKER = Memory(heap="512m", native="2g")

_SCORING_DAEMON, _GROUP_DAEMON = "trainyard.etl.jobs.daemon", "trainyard.trainer.group.daemon"

SPARK = Requirements(_SPARK_MODULES, _SMALL, _SMALL)
FEATURIZE = Requirements(_MODEL_MODULES, _WITH_TORCH, _WITH_TORCH, _SCORING_DAEMON)
PREDICT = FEATURIZE
EVALUATE = Requirements(_EVALUATE_MODULES, _WITH_TORCH, _WITH_TORCH, _SCORING_DAEMON)
TRAIN = Requirements(_TRAIN_MODULES, _WORKER, _SMALL, _GROUP_DAEMON)
SCRIPT = Requirements(_SCRIPT_MODULES, _WORKER, _SMALL, _GROUP_DAEMON)
