"""Ranking metrics equal those of scikit-learn and torchmetrics."""

from __future__ import annotations

import itertools

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


def rank_all_orders(names, scores, relevance):
    """Return the means of metrics of one query over all orders of its rows that the scores permit."""
    orders = [
        order for order in map(list, itertools.permutations(range(len(scores)))) if (np.diff(scores[order]) <= 0).all()
    ]
    metrics = [rank(names, -np.arange(len(scores)), relevance[order]) for order in orders]
    return {name: np.mean([each[name] for each in metrics]) for name in names}


def rank(names, scores, relevance, query=None):
    query = np.ones(len(scores), np.int64) if query is None else query
    return compute_metrics(names, OutputSpec((), (), None, "none"), scores, relevance, query=query).metrics


@pytest.mark.parametrize("seed", range(6))
def test_metrics_of_tied_scores_are_means_over_all_orders_of_them(seed):
    rng = np.random.default_rng(seed)
    names = [f"{name}{cutoff}" for name in ("ndcg", "mrr", "hit_rate") for cutoff in ("", "@1", "@3")]
    queries = [(rng.integers(0, 3, n).astype(float), rng.integers(0, 3, n) * (rng.random(n) < 0.5)) for n in (1, 4, 6)]
    expected = [rank_all_orders(names, scores, relevance) for scores, relevance in queries]
    scores, relevance = (np.concatenate(parts) for parts in zip(*queries, strict=True))
    computed = rank(names, scores, relevance, np.repeat([1, 2, 3], [1, 4, 6]))
    assert computed == pytest.approx({name: np.mean([each[name] for each in expected]) for name in names})


@pytest.mark.parametrize("relevance", [[1, 0, 0, 0], [0, 0, 0, 1]])
def test_a_constant_score_is_no_ranking_whatever_the_order_of_rows(relevance):
    computed = rank(["mrr", "hit_rate@1", "ndcg"], np.zeros(4), np.array(relevance))
    assert computed == pytest.approx(
        {"mrr": (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4, "hit_rate@1": 1 / 4, "ndcg": (1 / np.log2(np.arange(2, 6))).mean()}
    )


def test_a_large_group_of_ties_is_ranked_exactly():
    relevance = np.zeros(100_000)
    relevance[:50_000] = 1
    assert rank(["hit_rate@2"], np.zeros(100_000), relevance)["hit_rate@2"] == pytest.approx(
        1 - 0.5 * 49_999 / 99_999, abs=1e-8
    )


def test_a_network_with_several_scores_for_a_row_is_refused():
    with pytest.raises(TrainyardError, match=r"'mrr' is for ranking: the network must return one score for each row"):
        compute_metrics(["mrr"], OutputSpec((2,), (), None, "none"), np.zeros((1, 2)), np.zeros(1))
