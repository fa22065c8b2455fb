"""The document of an evaluation: where it is, and what it has."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.evaluations import beside, evaluation, scores
from trainyard.schemas.evaluation import Evaluation, Scores, Slice


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


def test_the_document_has_every_metric(tmp_path: Path) -> None:
    metrics = {"accuracy": 0.9, "confusion_matrix": [[40, 1], [2, 57]]}
    stored = evaluation(Scores(**scores(str(tmp_path), "a" * 64, **metrics)))
    stored.save()
    assert Evaluation.load(stored.uri).model.metrics == metrics
