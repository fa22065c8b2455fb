"""Metrics by name: which there are, and which way is better."""

from __future__ import annotations

import re

CLASSIFICATION = (
    "accuracy", "precision", "recall", "f1", "auroc", "average_precision", "log_loss", "calibration_error",
    "confusion_matrix",
)  # fmt: skip
REGRESSION = ("mae", "mse", "rmse", "r2")
RANKING = ("ndcg", "mrr", "hit_rate")
"""Of these `name@k` looks at the first k of a query alone."""

_LESS_IS_BETTER = frozenset({"log_loss", "calibration_error", "mae", "mse", "rmse"})
_AT = re.compile(r"(\w+)@([1-9]\d*)")


def cut(name: str) -> tuple[str, int | None]:
    """`ndcg@10` as ("ndcg", 10), any other name with None."""
    found = _AT.fullmatch(name)
    return (found[1], int(found[2])) if found and found[1] in RANKING else (name, None)


def is_custom(name: str) -> bool:
    """Whether it names a function of the user's, `module:function`, that makes a metric of torchmetrics."""
    return ":" in name


def known(name: str) -> bool:
    """Whether there is a metric of this name, or it is one of the user's."""
    return is_custom(name) or cut(name)[0] in (*CLASSIFICATION, *REGRESSION, *RANKING)


def sign(name: str) -> int:
    """1 when more is better, -1 when less is; 0 when there is no better, or it is not known."""
    if is_custom(name) or name == "confusion_matrix":
        return 0
    return -1 if name in _LESS_IS_BETTER else 1
