"""Evaluations and models as documents, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainyard.files import storage, uris
from trainyard.schemas.evaluation import Baseline, Difference, Evaluation, Scores
from trainyard.schemas.model_artifact import ModelArtifact, WeightsFile


def scores(uri: str, weights: str, **metrics: Any) -> dict[str, Any]:
    intervals = {name: (value - 0.1, value + 0.1) for name, value in metrics.items() if isinstance(value, float)}
    return {"uri": uri, "weights_sha256": weights, "metrics": metrics, "intervals": intervals}


def evaluation(model: Scores, *others: Baseline, **fields: Any) -> Evaluation:
    known = {
        "dataset": "d", "dataset_hash": "d" * 64, "dataset_version": 1, "split": "test", "rows": 100,
        "confidence": 0.95, "application": "a",
    }  # fmt: skip
    return Evaluation(model=model, baselines=others, **(known | fields))


def beside(uri: str, weights: str, **differences: tuple[float, float, float]) -> Baseline:
    """A model that the other is above by (low, value, high) in each metric."""
    by_metric = {n: Difference(value=value, interval=(low, high)) for n, (low, value, high) in differences.items()}
    return Baseline(**scores(uri, weights), differences=by_metric)


def write_model(
    model: Path, weights: bytes, metrics: dict[str, float] | None = None, dataset: str = "d"
) -> ModelArtifact:
    """Write a model artifact with these bytes as weights."""
    digest = weights.hex().ljust(64, "0")
    artifact = ModelArtifact(
        recipe="a:b", recipe_params={}, inputs=(), label=None, normalization={}, dataset=dataset, dataset_hash="d",
        weights=(WeightsFile(path=f"{digest[:16]}/weights.safetensors", bytes=len(weights), sha256=digest),),
        weights_sha256=digest, dataset_version=1, metrics=metrics or {}, epochs=1,
        workers=1, seconds=1.0, device="cpu", application="", written_at=str(model), versions={},
    )  # fmt: skip
    storage.replace(uris.join(str(model), artifact.weights[0].path), weights)
    for name in (f"{digest[:16]}/model.json", "model.json"):
        storage.replace(uris.join(str(model), name), artifact.to_json().encode())
    return artifact
