"""Heads: the outputs of a model, each with the label that it learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from trainyard.errors import TrainyardError
from trainyard.trainer.model import loss_kinds, named_metrics

if TYPE_CHECKING:
    from torchmetrics import Metric


def name_prediction(output: Any) -> dict[str, Tensor]:
    """Return the output of a model as the column `prediction`. Raises TrainyardError if it is not a tensor."""
    if not isinstance(output, Tensor):
        part = next(iter(output), None) if isinstance(output, Mapping) else 0
        raise TrainyardError(
            f"the model returns a {type(output).__name__}, and not a tensor. Set predict= in the recipe, which "
            f"returns a dict of tensors of shape (rows, ...) by column, such as {{'prediction': output[{part!r}]}}; or "
            "heads=, if the model has an output for each of several labels."
        )
    return {"prediction": output}


@dataclass(frozen=True, kw_only=True)
class Head:
    """One of several outputs of a model, and the label that it learns.

    Attributes:
        label: The label column. By default it is named as the head.
        loss: `loss(output, label)` returns the mean over rows. With `classes` the default is cross entropy.
        metrics: Metrics of torchmetrics on (output, label) of the validation split, by name; or some of the names
            `accuracy`, `precision`, `recall`, `f1`, `mae`, `mse`, `rmse` and `r2`.
        classes: The number of classes, if the label is a class: labels out of range are refused before training.
        weight: What the loss of the head counts in the sum that is minimized.
        predict: A function from the head's output to columns of a prediction, whose names begin with that of the head:
            `kind_class` for `{"class": ...}` of the head `kind`.

    Raises:
        TrainyardError: Fields contradict each other.
    """

    label: str | None = None
    loss: Callable[[Any, Tensor], Tensor] | None = None
    metrics: Mapping[str, Metric] | Sequence[str] = ()
    classes: int | None = None
    weight: float = 1.0
    predict: Callable[[Tensor], Mapping[str, Tensor]] = name_prediction

    def __post_init__(self) -> None:
        if self.loss is None and self.classes is not None:
            object.__setattr__(self, "loss", nn.CrossEntropyLoss())
        if self.loss is not None and not callable(self.loss):
            raise TrainyardError(
                f"Recipe: loss={self.loss!r} is not a function; write one, or a module such as nn.CrossEntropyLoss() "
                "or nn.MSELoss()."
            )
        if not (math.isfinite(self.weight) and self.weight >= 0):
            raise TrainyardError(f"Recipe: weight={self.weight} of a head is not valid; write a number, 0 or more.")
        if isinstance(self.metrics, str):
            raise TrainyardError(f"Recipe: metrics={self.metrics!r} is a text; write [{self.metrics!r}].")
        if not isinstance(self.metrics, Mapping):
            is_binary = loss_kinds.is_any(self.loss, loss_kinds.BINARY)
            named_metrics.check_names([*self.metrics], self.classes, is_binary)

    @cached_property
    def metrics_by_name(self) -> Mapping[str, Metric]:
        """The metrics of this head alone, by name: copies of those that are given, which several heads may share."""
        if isinstance(self.metrics, Mapping):
            return deepcopy(dict(self.metrics))
        return named_metrics.build_metrics(
            self.metrics, self.classes, loss_kinds.get_ignored_label(self.loss),
            is_logarithm=loss_kinds.takes_logarithms(self.loss),
        )  # fmt: skip
