"""The summary of an evaluation is small, whatever its metrics are; the document has all of them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.plugins.evaluations import beside, evaluation, scores
from trainyard.schemas.evaluation import Evaluation, Scores

MATRIX = [[1] * 1000] * 1000


def evaluated(folder: Path) -> Evaluation:
    """An evaluation with a confusion matrix of 1,000 classes, of the model and of a baseline."""
    metrics = {"accuracy": 0.9, "auroc": None, "confusion_matrix": MATRIX, "toy.metrics:by_class": [0.5] * 1000}
    other = beside("other", "b" * 64).model_copy(update={"metrics": metrics})
    return evaluation(Scores(**scores(str(folder), "a" * 64, **metrics)), other)


def test_the_summary_has_the_metrics_that_are_numbers(tmp_path: Path) -> None:
    summary = evaluated(tmp_path).summary()
    assert summary["metrics"] == {"accuracy": 0.9, "auroc": None}
    assert [other["metrics"] for other in summary["baselines"]] == [{"accuracy": 0.9, "auroc": None}]
    assert len(json.dumps(summary)) < 2000


def test_the_document_that_the_summary_names_has_every_metric(tmp_path: Path) -> None:
    stored = evaluated(tmp_path)
    stored.save()
    assert Evaluation.load(stored.summary()["evaluation"]).model.metrics["confusion_matrix"] == MATRIX
