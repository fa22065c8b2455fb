"""What a training minimizes: the sum of the losses of a recipe's heads, over the labels that there are."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from trainyard.errors import TrainyardError
from trainyard.schemas.heads import ONLY, name_metric
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.loss_kinds import OF_CLASSES, is_any
from trainyard.trainer.model.losses import check_outputs, compute_loss, sum_weights
from trainyard.trainer.model.recipe import Batch, Recipe


@dataclass(frozen=True)
class Objective:
    """The losses of a recipe's heads on some datasets; that of a `step` is the only one of its recipe.

    Attributes:
        recipe: The recipe.
        missing: The value that stands for no label, by head; heads whose rows all have a label are left out.
        weighed: The heads whose batches count by the weights of their labels, and not by their rows.
        max_classes: The largest number of a class in the datasets, by head whose loss is one of classes.
    """

    recipe: Recipe
    missing: Mapping[str, float] = field(default_factory=dict)
    weighed: Collection[str] = ()
    max_classes: Mapping[str, float] = field(default_factory=dict)

    @cached_property
    def heads(self) -> Mapping[str, Head]:
        """What has a loss, by name."""
        return {ONLY: Head()} if self.recipe.step else self.recipe.heads_by_name

    def compute_losses(self, output: Any, columns: Batch) -> list[Tensor]:
        """Return the loss of each head for the output of the network, a mean over the labels of the batch.

        Raises:
            TrainyardError: The shape of an output does not match its label.
        """
        outputs = self.recipe.split_output(output)
        return [self.compute_loss(name, outputs[name], columns) for name in self.heads]

    def compute_loss(self, name: str, output: Any, columns: Batch) -> Tensor:
        """Return the loss of one head for its output; see `compute_losses`."""
        try:
            return self._compute_loss(name, output, columns)
        except TrainyardError as error:
            raise (TrainyardError(f"head {name!r}: {error}") if name else error) from None

    def _compute_loss(self, name: str, output: Any, columns: Batch) -> Tensor:
        head = self.heads[name]
        assert head.label is not None  # checked before the training
        check_outputs(head.label, output, self.max_classes.get(name, -1))
        label = columns[head.label]
        if name in self.missing and not is_any(head.loss, OF_CLASSES):  # these leave out ignored labels themselves
            output, label = select_labeled(output, label, self.missing[name])
            if not len(label):
                return torch.stack([part.sum() for part in tree_leaves(output)]).sum()  # 0, as are its gradients
        return compute_loss(head, output, label)

    def weigh(self, rows: int, columns: Batch) -> list[float | Tensor]:
        """Return what the loss of each head counts in a batch: its rows, or the weights of its labels.

        Args:
            rows: How many rows count; with 0 the batch has one that does not.
            columns: The columns.
        """
        weights: list[float | Tensor] = []
        for name, head in self.heads.items():
            own = self._sum_weights(name, head, columns) if name in self.weighed else None
            weights.append(rows if own is None else min(rows, 1) * own)
        return weights

    def _sum_weights(self, name: str, head: Head, columns: Batch) -> Tensor | None:
        if is_any(head.loss, OF_CLASSES):
            return sum_weights(head, columns)
        return find_labeled(columns[head.label or ""], self.missing[name]).sum(dtype=torch.float64)

    def sum_losses(self, losses: Sequence[Tensor], shares: Sequence[float | Tensor]) -> Tensor:
        """Return the sum of the losses of the heads, each by the weight of its head and by its share of the batch."""
        factors = [head.weight * share for head, share in zip(self.heads.values(), shares, strict=True)]
        parts = [
            loss * factor if isinstance(factor, Tensor) or factor != 1 else loss
            for loss, factor in zip(losses, factors, strict=True)
        ]
        return sum(parts[1:], start=parts[0])

    def name_losses(self, name: str, sums: Sequence[float], weights: Sequence[float]) -> dict[str, float]:
        """Return the mean losses of an epoch: that of all heads by `name`, and those of named heads.

        Args:
            name: "loss" or "validation_loss".
            sums: The sum of the losses of each head.
            weights: The sum of what they count. The loss of a head without labels is NaN, and adds nothing.
        """
        means = [total / (weight or 1) for total, weight in zip(sums, weights, strict=True)]
        both = sum(head.weight * mean for head, mean in zip(self.heads.values(), means, strict=True))
        own = {
            name_metric(head, name): mean if weight else math.nan
            for head, mean, weight in zip(self.heads, means, weights, strict=True) if head
        }  # fmt: skip
        return {name: both, **own}


def find_labeled(label: Tensor, missing: float) -> Tensor:
    """Return whether each row (rows,) has a label.

    Args:
        label: The labels (rows,).
        missing: The value that stands for none.
    """
    return ~label.isnan() if math.isnan(missing) else label != missing


def select_labeled(output: Any, label: Tensor, missing: float) -> tuple[Any, Tensor]:
    """Return the rows that have a label, of an output and of the labels."""
    labeled = find_labeled(label, missing)
    if labeled.all():
        return output, label
    return tree_map_only(Tensor, lambda part: part[labeled], output), label[labeled]
