"""Metrics of ranking, against scikit-learn and torchmetrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score
from torchmetrics.functional import retrieval

from tests.etl.metrics.model_metrics import model_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import Task


def queries(seed=0):
    """Scores, relevance and query of rows; some queries are short, some have nothing relevant."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(40), rng.integers(2, 12, 40))
    relevance = rng.integers(0, 4, len(query)) * (query % 5 > 0)
    return rng.permutation(len(query)) + 9.0 * relevance, relevance, query


def mean(of, scores, relevance, query):
    return np.mean([of(scores[query == q], relevance[query == q]) for q in np.unique(query)])


@pytest.mark.parametrize("first", [None, 1, 3])
def test_metrics_are_means_over_queries(first):
    scores, relevance, query = queries()
    at = f"@{first}" if first else ""
    edge = int(np.flatnonzero(query == 20)[0])
    names = [f"{name}{at}" for name in ("ndcg", "mrr", "hit_rate")]
    task = Task((), (), None, "none")
    found = model_metrics(names, task, scores, relevance, query=query, cuts=[edge]).metrics

    def of_torch(metric):
        return lambda s, r: metric(torch.tensor(s), torch.tensor(r > 0), top_k=first).item()

    assert found[f"ndcg{at}"] == pytest.approx(
        mean(lambda s, r: ndcg_score([r], [s], k=first) if r.any() else 0, scores, relevance, query)
    )
    assert found[f"mrr{at}"] == pytest.approx(
        mean(of_torch(retrieval.retrieval_reciprocal_rank), scores, relevance, query)
    )
    assert found[f"hit_rate{at}"] == pytest.approx(
        mean(of_torch(retrieval.retrieval_hit_rate), scores, relevance, query)
    )


def test_several_scores_a_row_are_refused():
    with pytest.raises(TrainyardError, match=r"'mrr' is one of ranking: the network must return one score a row"):
        model_metrics(["mrr"], Task((2,), (), None, "none"), np.zeros((1, 2)), np.zeros(1))
