"""Results of jobs, made up."""

from __future__ import annotations

from typing import Any

_DATASET = {
    "uri": "file:///s/toy/dataset", "content_hash": "c" * 64, "version": 1, "rows": 40,
    "splits": {"train": 30, "validation": 10}, "partitions": 1, "shards": 2, "record_batches": 3, "bytes": 4000,
    "warnings": [],
}  # fmt: skip
OUTPUTS: dict[str, dict[str, Any]] = {
    "export": _DATASET,
    "featurize": _DATASET,
    "train": {
        "uri": "file:///s/toy/model", "weights_sha256": "a" * 64, "dataset_hash": "c" * 64, "dataset_version": 1,
        "metrics": {"loss": 0.25, "accuracy": 0.75}, "epochs": 3, "best_epoch": 2, "epoch_models": [],
        "stopped_early": False, "workers": 2, "bytes_sent": 0, "bottleneck": "", "limited_by": "", "advice": "",
        "formats": {}, "seconds": {}, "warnings": [], "restarts": 0,
    },
    "script": {"workers": 2, "restarts": 0},
    "evaluate": {
        "uri": "file:///s/toy/model", "weights_sha256": "a" * 64, "metrics": {"accuracy": 0.75}, "intervals": {},
        "dataset": "file:///s/toy/dataset", "dataset_hash": "c" * 64, "dataset_version": 1, "split": "test",
        "rows": 40, "confidence": 0.95, "query": None, "application": "a", "warnings": [], "baselines": [],
        "evaluation": "file:///s/toy/evaluation.json",
    },
    "predict": {
        "uri": "file:///s/toy/predictions", "model": "file:///s/toy/model", "weights_sha256": "a" * 64, "rows": 40,
        "columns": ["id", "prediction"],
    },
}  # fmt: skip
"""What each kind of job returns, as its XCom has it."""


def output(job: str, **fields: Any) -> dict[str, Any]:
    """Return the XCom of a job with other values of some fields."""
    return OUTPUTS[job] | fields
