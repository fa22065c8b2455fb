"""Combine the outputs of several models; of classes by their probabilities, so that the output is that of one model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainyard.errors import TrainyardError
from trainyard.schemas.heads import ONLY
from trainyard.schemas.model_artifact import Combination
from trainyard.trainer.model import loss_kinds
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.recipe import Batch, Recipe

LEAST = 1e-6
"""The probability of a class without a vote: its logarithm must be finite."""


class EnsembleNetwork(nn.Module):
    """Apply the networks of several models to a batch, and combine their outputs.

    Args:
        members: The networks; each normalizes its own inputs.
        heads: The heads of a member's recipe, whose losses say what an output means.
        by: How outputs are combined.
        weights: What the output of each member counts; they sum to 1.
        names: The URIs of the models, for errors.
    """

    def __init__(
        self,
        members: Sequence[nn.Module],
        heads: Mapping[str, Head],
        by: Combination,
        weights: Sequence[float],
        names: Sequence[str],
    ) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self._heads, self._by, self._weights, self._names = dict(heads), by, tuple(weights), tuple(names)

    def forward(self, batch: Batch) -> Any:
        """Return the combined output; with heads, a dict of them."""
        return self.combine([member(batch) for member in self.members])

    def combine(self, outputs: Sequence[Any]) -> Any:
        """Return the combined output from those of the members, in their order.

        Raises:
            TrainyardError: The outputs of two members differ in shape, or one is no tensor.
        """
        if ONLY in self._heads:
            return self._combine(self._heads[ONLY], outputs)
        return {name: self._combine(head, [one[name] for one in outputs]) for name, head in self._heads.items()}

    def _combine(self, head: Head, outputs: Sequence[Any]) -> Tensor:
        first = _describe(outputs[0])
        for name, output in zip(self._names, outputs, strict=True):
            if not isinstance(output, Tensor):
                raise TrainyardError(
                    f"the models of an ensemble must return tensors, but {name} returns a {type(output).__name__}; "
                    "write heads= in its recipe, and train it again."
                )
            if (described := _describe(output)) != first:
                raise TrainyardError(
                    f"the models of an ensemble must have the same outputs, but that of {self._names[0]} is {first}, "
                    f"and that of {name} is {described}."
                )
        combine = mean_outputs if self._by == "mean" else count_votes
        stacked = torch.stack([output.float() for output in outputs])
        return combine(head, stacked, stacked.new_tensor(self._weights))


def _describe(output: Any) -> str:
    return f"of shape {list(output.shape)}" if isinstance(output, Tensor) else f"a {type(output).__name__}"


def check_members(recipes: Sequence[Recipe], by: Combination, names: Sequence[str]) -> None:
    """Check that the outputs of members mean the same.

    Args:
        recipes: The recipes of the members.
        by: How outputs are combined.
        names: The URIs of the models.

    Raises:
        TrainyardError: The number of classes, the kind of loss or the form of sequences differs; or members vote that
            have no classes.
    """
    meanings = [
        {head: (part.classes, _get_link(part).__name__) for head, part in one.heads_by_name.items()} for one in recipes
    ]
    for name, recipe, meaning in zip(names, recipes, meanings, strict=True):
        if meaning != meanings[0] or recipe.sequences != recipes[0].sequences:
            raise TrainyardError(
                f"the models of an ensemble must have the same outputs, but the recipes of {names[0]} and {name} "
                "differ in classes=, loss= or sequences=."
            )
    if by == "vote" and not all(_is_of_classes(head) for head in recipes[0].heads_by_name.values()):
        raise TrainyardError(f"by='vote' goes with models of classes, which {names[0]} is not; write by='mean'.")


def mean_outputs(head: Head, outputs: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted mean of outputs (models, rows, ...): of logits and logarithms that of what they stand for."""
    return _choose_link(head, outputs)(outputs, weights)


def count_votes(head: Head, outputs: Tensor, weights: Tensor) -> Tensor:
    """Return the output whose probabilities are the weighted shares of the votes of outputs (models, rows, ...)."""
    link = _choose_link(head, outputs)
    if link is _mean_of_classes or link is _mean_of_logarithms:
        classes = outputs.shape[2]
        votes = functional.one_hot(outputs.argmax(2), classes).movedim(-1, 2)
        return _weigh(votes.float(), weights).clamp_min(LEAST).log()
    threshold = 0.0 if link is _mean_of_logits else 0.5
    shares = _weigh((outputs > threshold).float(), weights)
    return shares.clamp(LEAST, 1 - LEAST).logit() if link is _mean_of_logits else shares


def _choose_link(head: Head, outputs: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Return how the mean of outputs (models, rows, ...) is computed; one output for two classes is a logit."""
    link = _get_link(head)
    is_single = outputs.dim() == 2 or outputs.shape[2] == 1
    return _mean_of_logits if link is _mean_of_classes and is_single else link


def _get_link(head: Head) -> Callable[[Tensor, Tensor], Tensor]:
    """Return how the mean of outputs is computed, which depends on the loss."""
    if loss_kinds.is_any(head.loss, loss_kinds.BINARY_OF_PROBABILITIES):
        return _weigh
    if loss_kinds.is_any(head.loss, loss_kinds.BINARY):
        return _mean_of_logits
    if loss_kinds.is_any(head.loss, loss_kinds.NEGATIVE_LOG_LIKELIHOOD) or _has_log_input(head.loss):
        return _mean_of_logarithms
    return _mean_of_classes if _is_of_classes(head) else _weigh


def _is_of_classes(head: Head) -> bool:
    return head.classes is not None or loss_kinds.is_any(head.loss, (*loss_kinds.OF_CLASSES, *loss_kinds.BINARY))


def _has_log_input(loss: Any) -> bool:
    return loss_kinds.is_any(loss, loss_kinds.POISSON) and bool(loss_kinds.get_option(loss, "log_input", True))


def _weigh(outputs: Tensor, weights: Tensor) -> Tensor:
    total: Tensor = torch.tensordot(weights, outputs, 1)
    return total


def _mean_of_logarithms(outputs: Tensor, weights: Tensor) -> Tensor:
    shape = (-1, *(1 for _ in outputs.shape[1:]))
    return torch.logsumexp(outputs + weights.log().reshape(shape), 0)


def _mean_of_classes(outputs: Tensor, weights: Tensor) -> Tensor:
    return _mean_of_logarithms(functional.log_softmax(outputs, 2), weights)


def _mean_of_logits(outputs: Tensor, weights: Tensor) -> Tensor:
    true, false = (_mean_of_logarithms(functional.logsigmoid(sign * outputs), weights) for sign in (1, -1))
    return true - false
