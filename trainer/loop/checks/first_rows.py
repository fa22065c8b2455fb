"""Compare the output of the untrained model for some rows with their labels, before an epoch is spent."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainyard.errors import TrainyardError, summarize
from trainyard.schemas.heads import name_metric
from trainyard.trainer.data.loader import Loader
from trainyard.trainer.loop.evaluation import to_number
from trainyard.trainer.model.loss_kinds import get_function
from trainyard.trainer.model.objective import Objective, select_labeled
from trainyard.trainer.verification.check import ROWS

if TYPE_CHECKING:
    from torchmetrics import Metric


@dataclass(frozen=True)
class FirstRows:
    """The first rows of a split, of which losses and metrics are computed.

    Attributes:
        objective: The losses of the recipe's heads.
        loader: The split: that of validation, if there is one.
        validates: Whether it is that of validation, which has metrics.
    """

    objective: Objective
    loader: Loader
    validates: bool

    def check(self, output: Any) -> None:
        """Check that losses and metrics take the output of the untrained network for the first `ROWS` rows.

        Raises:
            TrainyardError: One does not; the message names it.
        """
        recipe = self.objective.recipe
        if not self.validates:  # a training may return other outputs, and its first step is the first to compute them
            recipe.split_output(output)
            return
        labels = self._read_labels()
        for name, part in recipe.split_output(output).items():
            if recipe.labels.get(name) not in labels:
                continue
            if recipe.step is None:
                self._check_loss(name, part, labels)
            self._check_metrics(name, part, labels[recipe.labels[name]])

    def _read_labels(self) -> dict[str, Tensor]:
        """Return the labels that are numbers or tensors, as they are stored."""
        recipe = self.objective.recipe
        names = dict.fromkeys(name for name in recipe.labels.values() if name not in recipe.decode)
        rows = self.loader.read_first_rows((n for n in names if self.loader.column(n).kind != "list"), ROWS)
        return {name: torch.from_numpy(values) for name, values in rows.items()}

    def _check_loss(self, name: str, output: Any, labels: Mapping[str, Tensor]) -> None:
        try:
            self.objective.compute_loss(name, output, labels)
        except TrainyardError:
            raise
        except Exception as error:
            is_of_torch = type(get_function(self.objective.heads[name].loss)).__module__.startswith("torch.")
            if not (name and is_of_torch):  # another one may need more rows; validation raises what remains
                return
            label = labels[self.objective.recipe.labels[name]]
            raise TrainyardError(
                f"head {name!r}: its loss does not take {_describe(output)} with labels of shape {list(label.shape)}: "
                f"{summarize(error)}. Change the model, the loss or the label."
            ) from error

    def _check_metrics(self, name: str, output: Any, label: Tensor) -> None:
        missing = self.objective.missing.get(name)
        if missing is not None:
            output, label = select_labeled(output, label, missing)
        for key, metric in self.objective.recipe.heads_by_name[name].metrics_by_name.items() if len(label) else ():
            copied = _copy_metric(metric)
            full_name = name_metric(name, key)
            try:
                copied.update(output, label)
            except Exception as error:
                raise TrainyardError(
                    f"metric {full_name!r} of the recipe does not take {_describe(output)} with labels "
                    f"of shape {list(label.shape)}: {summarize(error)}. Choose another metric, or change the model."
                ) from error
            value: Any = 0
            with suppress(Exception):  # a few rows may be too few for it
                value = copied.compute()
            to_number(full_name, value)


def _copy_metric(metric: Metric) -> Metric:
    """Return a copy of a metric that is not merged over workers: only rank 0 computes it."""
    copied = deepcopy(metric)
    for part in copied.modules():
        part.distributed_available_fn = lambda: False  # type: ignore[assignment]
    return copied


def _describe(values: Any) -> str:
    return f"an output of shape {list(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"
