"""The names that other systems have for options. An operator refuses them, and names its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_WORKERS, _EXECUTORS = ("workers", "executors"), ("executors", "workers")
_GPUS = ("gpus_per_worker", "gpus_per_executor")
_PLACEMENT = "placement=Placement({}=...)"

FAMILIAR: Mapping[str, Sequence[str]] = {
    # SparkSubmitOperator and spark-submit
    "num_executors": _EXECUTORS,
    "executor_cores": ("cores_per_executor", "cores_per_worker"),
    "executor_memory": ("memory",),
    "application_args": ("arguments",),
    "py_files": ("files",),
    "yarn_queue": (_PLACEMENT.format("queue"),),
    "node_label": (_PLACEMENT.format("node_label"),),
    # torchrun, Ray Train, Horovod, TorchDistributor
    "num_workers": _WORKERS,
    "num_processes": _WORKERS,
    "num_proc": _WORKERS,
    "nproc_per_node": _WORKERS,
    "gpus": _GPUS,
    "num_gpus": _GPUS,
    "use_gpu": _GPUS,
    "max_failures": ("max_restarts",),
    "env": ("env_vars",),
    # Lightning, transformers, Keras
    "max_epochs": ("epochs",),
    "num_epochs": ("epochs",),
    "num_train_epochs": ("epochs",),
    "accumulate_grad_batches": ("micro_batches",),
    "gradient_accumulation_steps": ("micro_batches",),
    "gradient_clip_val": ("clip_norm",),
    "max_grad_norm": ("clip_norm",),
    "patience": ("early_stopping",),
    "train_dataset": ("dataset",),
    "eval_dataset": ("dataset",),
}
"""Options by the names that other systems have for them, the first of which an operator has counts."""
