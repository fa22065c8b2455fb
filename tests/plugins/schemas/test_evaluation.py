"""The summary of an evaluation is small, whatever its metrics are; the document has all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.plugins.evaluations import beside, evaluation, scores
from trainyard.schemas.evaluation import Evaluation, Scores, Slice

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


def test_other_questions_about_the_same_rows_have_documents_of_their_own() -> None:
    known = scores("m", "a" * 64, accuracy=0.9)
    detailed = Slice(column="city", value="Bern", rows=1, metrics={}, intervals={})
    asked = [
        evaluation(Scores(**known)),
        evaluation(Scores(**known), beside("other", "b" * 64)),
        evaluation(Scores(**known), beside("other", "c" * 64)),
        evaluation(Scores(**known), confidence=0.9),
        evaluation(Scores(**known), query="session"),
        evaluation(Scores(**known, slices=(detailed,))),
        evaluation(Scores(**scores("m", "a" * 64, f1=0.9))),
    ]
    assert len({each.uri for each in asked}) == len(asked)
    assert evaluation(Scores(**scores("m", "a" * 64, accuracy=0.8))).uri == asked[0].uri, "the same one, asked again"


@pytest.mark.slow
def test_the_document_that_the_summary_names_has_every_metric(tmp_path: Path) -> None:
    stored = evaluated(tmp_path)
    stored.save()
    assert Evaluation.load(stored.summary()["evaluation"]).model.metrics["confusion_matrix"] == MATRIX
