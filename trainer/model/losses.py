"""Losses: recognize those of torch, compute the loss of a batch, and explain what they refuse."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainyard.errors import TrainyardError
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.loss_kinds import (
    BINARY,
    OF_CLASSES,
    Losses,
    get_function,
    get_ignored_label,
    get_name,
    get_option,
    is_any,
)
from trainyard.trainer.model.network import explain_shapes, explain_types
from trainyard.trainer.model.recipe import Batch

_REMEDY = "Lower the learning rate in the recipe, set clip_norm=, or normalize the features."
_FUNCTIONS_OF_CLASSES: Losses = (functional.cross_entropy, functional.nll_loss)
ELEMENTWISE: Losses = (
    *BINARY, nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.PoissonNLLLoss, nn.KLDivLoss, nn.SoftMarginLoss,
    nn.HingeEmbeddingLoss, nn.MultiLabelSoftMarginLoss, functional.mse_loss, functional.l1_loss,
    functional.smooth_l1_loss, functional.huber_loss, functional.poisson_nll_loss, functional.gaussian_nll_loss,
    functional.kl_div, functional.soft_margin_loss, functional.hinge_embedding_loss,
    functional.multilabel_soft_margin_loss,
)  # fmt: skip
"""Losses that compare each number of the output with the one at its place in the label."""
_SIGNS: Losses = (
    nn.SoftMarginLoss, nn.HingeEmbeddingLoss, functional.soft_margin_loss, functional.hinge_embedding_loss,
)  # fmt: skip
_DIVERGENCE: Losses = (nn.KLDivLoss, functional.kl_div)
_RANGES: tuple[tuple[Losses, float, float], ...] = (
    ((*BINARY, nn.MultiLabelSoftMarginLoss, functional.multilabel_soft_margin_loss), 0, 1),
    ((nn.CrossEntropyLoss, functional.cross_entropy), 0, 1),
    ((nn.PoissonNLLLoss, functional.poisson_nll_loss, *_DIVERGENCE), 0, math.inf),
)
"""The smallest and the largest label of losses of numbers; cross entropy takes probabilities of classes, too."""
_SHORT_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32})


def explain_invalid_labels(loss: Any, labels: Collection[float]) -> str | None:
    """Return which labels a loss takes, if not all of some numbers are such; None if they are.

    Args:
        loss: The loss.
        labels: Values of a label that is no number of a class.
    """
    name = get_name(loss)
    if is_any(loss, _SIGNS):
        return None if {-1.0, 1.0}.issuperset(labels) else f"{name} takes the labels -1 and 1 only"
    if is_any(loss, _DIVERGENCE) and get_option(loss, "log_target", False):
        return f"{name}(log_target=True) takes logarithms of probabilities" if max(labels, default=0) > 0 else None
    for losses, low, high in _RANGES:
        if is_any(loss, losses) and not all(low <= label <= high for label in labels):
            return f"{name} takes labels from {low:g} to {high:g}" if high < math.inf else f"{name} takes no label < 0"
    return None


def check_outputs(name: str, output: Any, max_class: float) -> None:
    """Check that a model has an output for each class. Raises TrainyardError if it has not.

    Args:
        name: The column of the label.
        output: The output of the model, (rows, classes, ...).
        max_class: The largest number of a class in the dataset.
    """
    if isinstance(output, Tensor) and output.ndim > 1 and max_class >= output.shape[1]:
        raise TrainyardError(
            f"the model has {output.shape[1]} outputs for each row, so labels must be 0 to {output.shape[1] - 1}, but "
            f"column {name!r} has {max_class:g}. Build the model with {int(max_class) + 1} outputs, or renumber the "
            "labels in prepare.py."
        )


def move_loss(loss: Any, device: torch.device) -> None:
    """Move the tensors of a loss, such as the weights of classes, to a device, in place as a module does."""
    function = get_function(loss)
    if isinstance(function, nn.Module):
        function.to(device)
    if isinstance(loss, partial):
        tensors = {name: value for name, value in loss.keywords.items() if isinstance(value, Tensor)}
        loss.keywords.update({name: tensor.to(device) for name, tensor in tensors.items()})


def compute_loss(head: Head, output: Any, label: Tensor) -> Tensor:
    """Return the loss of a head.

    Labels become what torch's losses want: numbers of classes int64, and others the type of the output.

    Args:
        head: The head, which has a loss.
        output: Its output for some rows.
        label: Their labels.

    Raises:
        TrainyardError: The loss would compare the output of a row with the labels of all rows.
    """
    assert head.loss is not None and head.label is not None  # checked before the training
    if is_any(head.loss, ELEMENTWISE) and isinstance(output, Tensor):
        if output.shape != label.shape:
            raise _shape_error(head.label, output, label)
        dtype = torch.promote_types(output.dtype, label.dtype if label.is_floating_point() else torch.float32)
        return head.loss(output.to(dtype), label.to(dtype))
    are_classes = label.dtype == torch.bool and is_any(head.loss, OF_CLASSES)
    if label.dtype in _SHORT_INTEGERS or are_classes:
        label = label.long()
    mean = head.loss(output, label)
    if is_any(head.loss, _FUNCTIONS_OF_CLASSES):
        return _count_as_zero(mean, label, get_ignored_label(head.loss))
    return mean


def sum_weights(head: Head, columns: Batch) -> Tensor | None:
    """Return the sum of weights by which a loss of classes divides, 0 for ignored ones; None if it divides by rows."""
    label = columns[head.label or ""]
    if label.is_floating_point():  # probabilities of classes
        return None
    ignored, weights = get_ignored_label(head.loss), get_option(head.loss, "weight")
    counted = torch.ones_like(label, dtype=torch.bool) if ignored is None else torch.ne(label, ignored)
    of_labels: Tensor = counted if weights is None else weights[label.long().where(counted, 0)] * counted
    return of_labels.sum(dtype=torch.float64)


def count_batches_without_labels_as_zero(loss: nn.Module) -> None:
    """Make 0 of the loss of a batch of which `ignore_index` excludes all labels, as `compute_loss` does for functions.

    A module gets this only where the dataset has such labels: it costs each step four small operations.
    """
    loss.register_forward_hook(lambda module, inputs, mean: _count_as_zero(mean, inputs[1], module.ignore_index))


def _count_as_zero(mean: Tensor, label: Tensor, ignored: Any) -> Tensor:
    """Return 0 for a batch of ignored labels: torch's mean over no rows is NaN."""
    return torch.where(label.eq(ignored).all(), torch.zeros_like(mean), mean)


def find_shape_warnings(head: Head, output: Any, columns: Batch) -> list[str]:
    """Return what the shapes of an output and its label do in a loss that broadcasts them, a sentence each."""
    label = columns[head.label or ""]
    if not label.is_floating_point() or not _is_column(output, label):
        return []
    return [
        f"the output of the model has shape [rows, 1], and the label {head.label!r} [rows]: unless the recipe's loss "
        "removes the second dimension, it compares each row with all others. End the model with nn.Flatten(0), or with "
        "squeeze(1)."
    ]


def _is_column(output: Any, label: Tensor) -> bool:
    return isinstance(output, Tensor) and label.ndim == 1 and output.shape == (*label.shape, 1)


def _shape_error(name: str, output: Tensor, label: Tensor) -> TrainyardError:
    return TrainyardError(
        f"the output of the model has shape {list(output.shape)}, and the label {name!r} {list(label.shape)}: the loss "
        "would compare rows with others. "
        + (
            "End the model with nn.Flatten(0), or with squeeze(1)."
            if _is_column(output, label)
            else "Change the model or the dataset, so that they are the same."
        )
    )


def check_finite_loss(loss: float, epoch: int, step: int) -> None:
    """Check the sum of losses of epoch `epoch`, counted from 0, after its step `step`, counted from 1.

    Raises:
        TrainyardError: It is NaN or infinite.
    """
    if not math.isfinite(loss):
        raise TrainyardError(f"the loss diverged: it is {loss} at epoch {epoch + 1}, by step {step}. {_REMEDY}")


def check_finite_weights(weights: Iterable[Tensor], epoch: int, step: int) -> None:
    """Check tensors that were trained for `epoch` epochs and `step` steps.

    Raises:
        TrainyardError: An element of a tensor is NaN or infinite, although no loss was: a gradient may have been.
    """
    sums: dict[torch.device, list[Tensor]] = {}
    for tensor in weights:
        if tensor.is_floating_point():
            sums.setdefault(tensor.device, []).append(tensor.detach().sum(dtype=torch.float32))
    if not all(torch.stack(of_device).isfinite().all() for of_device in sums.values()):
        where = f"epoch {epoch + 1}, step {step}" if step else f"the end of epoch {epoch}"
        raise TrainyardError(f"the weights diverged: by {where}, one is NaN or infinite. {_REMEDY}")


def check_is_mean(loss: Tensor) -> None:
    """Check that a loss is one number. Raises TrainyardError if it is not."""
    if loss.ndim:
        raise TrainyardError(
            f"the recipe's loss has shape {list(loss.shape)}; return one number, the mean over rows (reduction='mean')."
        )


@contextmanager
def explain_errors(network: nn.Module, unread: Collection[str]) -> Iterator[None]:
    """Raise TrainyardError for errors of a forward pass or a step of which the cause is known.

    Args:
        network: The network.
        unread: The columns of the dataset that batches do not have.
    """
    try:
        yield
    except KeyError as error:
        name = error.args[0] if error.args else None
        if isinstance(name, str) and name in unread:
            raise TrainyardError(
                f"the recipe uses the column {name!r}, which the dataset has but a batch does not. Write "
                f"extra_columns=[{name!r}] in the recipe."
            ) from error
        raise
    except (RuntimeError, ValueError) as error:
        explain_types(network, error)
        explain_shapes(network, error)
        raise
