"""Evaluations as documents, made up."""

from __future__ import annotations

from typing import Any

from trainyard.schemas.evaluation import Baseline, Difference, Evaluation, Scores


def scores(uri: str, weights: str, **metrics: Any) -> dict[str, Any]:
    intervals = {name: (value - 0.1, value + 0.1) for name, value in metrics.items() if isinstance(value, float)}
    return {"uri": uri, "weights_sha256": weights, "metrics": metrics, "intervals": intervals}


def evaluation(model: Scores, *others: Baseline, **fields: Any) -> Evaluation:
    known = {
        "dataset": "d", "dataset_hash": "h" * 64, "dataset_version": 1, "split": "test", "rows": 100,
        "confidence": 0.95, "application": "a",
    }  # fmt: skip
    return Evaluation(model=model, baselines=others, **(known | fields))


def beside(uri: str, weights: str, **differences: tuple[float, float, float]) -> Baseline:
    """A model that the other is above by (low, value, high) in each metric."""
    by_metric = {n: Difference(value=value, interval=(low, high)) for n, (low, value, high) in differences.items()}
    return Baseline(**scores(uri, weights), differences=by_metric)
