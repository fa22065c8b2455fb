"""Which loss a recipe has: a module, a function, or a partial of one."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn
from torch.nn import functional

Losses = tuple[Any, ...]
"""Classes of modules, and functions."""

NEGATIVE_LOG_LIKELIHOOD: Losses = (nn.NLLLoss, functional.nll_loss)
OF_CLASSES: Losses = (nn.CrossEntropyLoss, functional.cross_entropy, *NEGATIVE_LOG_LIKELIHOOD)
BINARY_OF_PROBABILITIES: Losses = (nn.BCELoss, functional.binary_cross_entropy)
POISSON: Losses = (nn.PoissonNLLLoss, functional.poisson_nll_loss)
BINARY: Losses = (nn.BCEWithLogitsLoss, functional.binary_cross_entropy_with_logits, *BINARY_OF_PROBABILITIES)


def is_any(loss: Any, losses: Losses) -> bool:
    """Return whether `loss` is one of some losses, or a subclass or partial of one."""
    function = get_function(loss)
    return any(function is each or (isinstance(each, type) and isinstance(function, each)) for each in losses)


def get_name(loss: Any) -> str:
    """Return the name of a loss: of its class, or of its function."""
    function = get_function(loss)
    return getattr(function, "__name__", type(function).__name__)


def get_option(loss: Any, name: str, default: Any = None) -> Any:
    """Return an option of a loss: a keyword of a partial, or else an attribute of a module; `default` if unset."""
    keywords = loss.keywords if isinstance(loss, partial) else {}
    return keywords.get(name, getattr(get_function(loss), name, default))


def get_ignored_label(loss: Any) -> int | None:
    """Return the label whose rows a loss ignores; None if it counts all rows."""
    ignored = get_option(loss, "ignore_index", -100 if is_any(loss, OF_CLASSES) else None)
    return None if ignored is None else int(ignored)


def get_function(loss: Any) -> Any:
    """Return the function or module of a loss, which may be a partial of it."""
    return loss.func if isinstance(loss, partial) else loss


def takes_logarithms(loss: Any) -> bool:
    """Return whether the output is the logarithm of what the label is compared with, as that of a Poisson loss is."""
    return is_any(loss, POISSON) and bool(get_option(loss, "log_input", True))
