"""The names of what a model with several heads has for each: metrics and columns of predictions."""

from __future__ import annotations

ONLY = ""
"""The name of the only head of a model without names of heads, whose metrics and columns have no prefix."""


def name_metric(head: str, metric: str) -> str:
    """Return the name of a metric of a head: `kind/accuracy`."""
    return f"{head}/{metric}" if head else metric


def split_metric(name: str) -> tuple[str, str]:
    """Return the head and the metric of a name: `kind/accuracy` is ("kind", "accuracy")."""
    head, _, metric = name.rpartition("/")
    return head, metric


def name_column(head: str, column: str) -> str:
    """Return the name of a column of a prediction of a head: `kind_class`."""
    return f"{head}_{column}" if head else column
