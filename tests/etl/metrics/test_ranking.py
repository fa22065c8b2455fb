"""Ranking metrics equal those of scikit-learn and torchmetrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score
from torchmetrics.functional import retrieval

from tests.etl.metrics.model_metrics import compute_metrics
from trainyard.errors import TrainyardError
from trainyard.etl.metrics.family import OutputSpec


def make_queries(seed=0):
    """Return scores, relevance and query of rows; some queries are short, some have no relevant row."""
    rng = np.random.default_rng(seed)
    query = np.repeat(np.arange(1, 41), rng.integers(2, 12, 40))
    relevance = rng.integers(0, 4, len(query)) * (query % 5 > 0)
    return rng.permutation(len(query)) + 9.0 * relevance, relevance, query


def average(metric, scores, relevance, query):
    return np.mean([metric(scores[query == q], relevance[query == q]) for q in np.unique(query)])


@pytest.mark.parametrize("cutoff", [None, 1, 3])
def test_metrics_are_means_over_queries(cutoff):
    scores, relevance, query = make_queries()
    suffix = f"@{cutoff}" if cutoff else ""
    edge = int(np.flatnonzero(query == 20)[0])
    names = [f"{name}{suffix}" for name in ("ndcg", "mrr", "hit_rate")]
    spec = OutputSpec((), (), None, "none")
    computed = compute_metrics(names, spec, scores, relevance, query=query, cuts=[edge]).metrics

    def call_torch(metric):
        return lambda s, r: metric(torch.tensor(s), torch.tensor(r > 0), top_k=cutoff).item()

    assert computed[f"ndcg{suffix}"] == pytest.approx(
        average(lambda s, r: ndcg_score([r], [s], k=cutoff) if r.any() else 0, scores, relevance, query)
    )
    assert computed[f"mrr{suffix}"] == pytest.approx(
        average(call_torch(retrieval.retrieval_reciprocal_rank), scores, relevance, query)
    )
    assert computed[f"hit_rate{suffix}"] == pytest.approx(
        average(call_torch(retrieval.retrieval_hit_rate), scores, relevance, query)
    )


def test_a_network_with_several_scores_for_a_row_is_refused():
    with pytest.raises(TrainyardError, match=r"'mrr' is for ranking: the network must return one score for each row"):
        compute_metrics(["mrr"], OutputSpec((2,), (), None, "none"), np.zeros((1, 2)), np.zeros(1))
