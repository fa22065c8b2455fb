"""The names of metrics, and whether more of each is better. Those of a head of a model are named `HEAD/NAME`."""

from __future__ import annotations

import re

from trainyard.schemas.heads import split_metric

CLASSIFICATION = (
    "accuracy", "precision", "recall", "f1", "auroc", "average_precision", "log_loss", "calibration_error",
    "confusion_matrix",
)  # fmt: skip
REGRESSION = ("mae", "mse", "rmse", "r2")
RANKING = ("ndcg", "mrr", "hit_rate")
"""Ranking metrics; `name@k` considers the first k rows of a query only."""

_LOWER_IS_BETTER = frozenset({"log_loss", "calibration_error", "mae", "mse", "rmse"})
_AT = re.compile(r"(\w+)@([1-9]\d*)")


def split_cutoff(name: str) -> tuple[str, int | None]:
    """Split `ndcg@10` into ("ndcg", 10); any other name gets None."""
    match = _AT.fullmatch(name)
    return (match[1], int(match[2])) if match and match[1] in RANKING else (name, None)


def is_custom(name: str) -> bool:
    """Return whether the name is `module:function`, a user's function that returns a torchmetrics metric."""
    return ":" in name


def is_known(name: str) -> bool:
    """Return whether the name is that of a metric, or of a user's function."""
    head, metric = split_metric(name)
    is_named = split_cutoff(metric)[0] in (*CLASSIFICATION, *REGRESSION, *RANKING)
    return (not head or head.isidentifier()) and (is_named or is_custom(metric))


def sign(name: str) -> int:
    """Return 1 if more is better, -1 if less is, 0 if neither or unknown."""
    _, metric = split_metric(name)
    if is_custom(metric) or metric == "confusion_matrix":
        return 0
    return -1 if metric in _LOWER_IS_BETTER else 1
