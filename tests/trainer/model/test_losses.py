"""The loss of a recipe: labels are compared with the outputs of their own rows, whatever their type."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from trainyard.errors import TrainyardError
from trainyard.trainer.model.heads import Head
from trainyard.trainer.model.losses import compute_loss, explain_invalid_labels, move_loss


class Doubled(nn.MSELoss):
    """A loss of a user's own."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return 2 * super().forward(input, target)


ELEMENTWISE = [nn.MSELoss(), nn.L1Loss(), nn.SmoothL1Loss(), nn.HuberLoss(), nn.BCEWithLogitsLoss(), nn.BCELoss()]


def get_loss(loss: Any, output: Tensor, label: Tensor) -> Tensor:
    return compute_loss(Head(label="y", loss=loss), output, label)


OTHERS = [
    nn.HingeEmbeddingLoss(), nn.SoftMarginLoss(), nn.KLDivLoss(), nn.MultiLabelSoftMarginLoss(), nn.PoissonNLLLoss(),
    Doubled(), functional.mse_loss, partial(functional.mse_loss), partial(functional.huber_loss, delta=2.0),
    partial(functional.gaussian_nll_loss, var=torch.ones(())), functional.soft_margin_loss, functional.kl_div,
    functional.hinge_embedding_loss, functional.multilabel_soft_margin_loss,
]  # fmt: skip


@pytest.mark.parametrize("loss", [*ELEMENTWISE, *OTHERS])
@pytest.mark.parametrize("label_shape", [(4,), (4, 2)])
def test_outputs_and_labels_of_different_shapes_are_refused(loss: Any, label_shape: tuple[int, ...]) -> None:
    """torch would compare each output with the labels of all rows."""
    message = rf"the output of the model has shape \[4, 1\], and the label 'y' \[{', '.join(map(str, label_shape))}\]"
    with pytest.raises(TrainyardError, match=message):
        get_loss(loss, torch.zeros(4, 1), torch.zeros(label_shape))


def test_the_error_for_outputs_in_a_column_says_what_to_append_to_the_model() -> None:
    with pytest.raises(TrainyardError, match=r"End the model with nn\.Flatten\(0\), or with squeeze\(1\)"):
        get_loss(nn.MSELoss(), torch.zeros(4, 1), torch.zeros(4))


def test_a_loss_of_the_recipes_own_may_take_any_shapes() -> None:
    loss = get_loss(lambda output, label: (output[:, 0] - label).mean(), torch.ones(4, 1), torch.zeros(4))
    assert loss.item() == 1


@pytest.mark.parametrize("loss", ELEMENTWISE)
@pytest.mark.parametrize("kind", [torch.bool, torch.uint8, torch.int8, torch.int64, torch.float64])
@pytest.mark.parametrize("output_kind", [torch.float32, torch.bfloat16])
def test_labels_of_any_type_are_compared_as_floats(loss: Any, kind: torch.dtype, output_kind: torch.dtype) -> None:
    output, label = torch.tensor([[0.25, 0.5], [0.75, 1.0]], dtype=output_kind), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    expected = loss(output.float(), label).item()
    assert get_loss(loss, output, label.to(kind)).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(),
        nn.NLLLoss(),
        functional.cross_entropy,
        partial(functional.cross_entropy, label_smoothing=0.1),
    ],
)
def test_two_classes_may_be_booleans(loss: Any) -> None:
    output, label = torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.tensor([0, 1])
    assert get_loss(loss, output, label.bool()) == loss(output, label)


@pytest.mark.parametrize("loss", [functional.cross_entropy, partial(functional.nll_loss, ignore_index=-1)])
def test_a_batch_of_which_a_function_ignores_all_labels_has_the_loss_0(loss: Any) -> None:
    """torch's is NaN: it is a mean over no rows."""
    ignored = loss.keywords["ignore_index"] if isinstance(loss, partial) else -100
    output = torch.randn(3, 5, requires_grad=True)
    none = get_loss(loss, output, torch.full((3,), ignored))
    none.backward()
    assert (none.item(), output.grad.abs().sum().item()) == (0, 0)  # type: ignore[union-attr]
    some = torch.tensor([ignored, 1, 2])
    assert get_loss(loss, output, some) == loss(output, some)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=torch.ones(3)),
        partial(functional.cross_entropy, weight=torch.ones(3), label_smoothing=0.1),
        partial(functional.binary_cross_entropy_with_logits, pos_weight=torch.ones(3)),
        partial(nn.CrossEntropyLoss(weight=torch.ones(3))),
    ],
)
def test_the_tensors_of_a_loss_move_to_a_device(loss: Any) -> None:
    move_loss(loss, torch.device("meta"))
    assert loss(torch.zeros(4, 3, device="meta"), torch.zeros(4, 3, device="meta")).device.type == "meta"


@pytest.mark.parametrize(
    ("loss", "valid", "invalid", "message"),
    [
        (nn.BCEWithLogitsLoss(), {0, 0.5, 1}, {-1, 1}, "BCEWithLogitsLoss takes labels from 0 to 1"),
        (functional.binary_cross_entropy, {0, 1}, {1, 2}, "binary_cross_entropy takes labels from 0 to 1"),
        (nn.MultiLabelSoftMarginLoss(), {0, 1}, {2}, "MultiLabelSoftMarginLoss takes labels from 0 to 1"),
        (partial(functional.cross_entropy), {0.1, 0.9}, {0, 100}, "cross_entropy takes labels from 0 to 1"),
        (nn.SoftMarginLoss(), {-1, 1}, {0, 1}, "SoftMarginLoss takes the labels -1 and 1 only"),
        (functional.hinge_embedding_loss, {1}, {-1, 0, 1}, "hinge_embedding_loss takes the labels -1 and 1 only"),
        (nn.PoissonNLLLoss(), {0, 1000}, {-1}, "PoissonNLLLoss takes no label < 0"),
        (nn.KLDivLoss(), {0, 0.5}, {-0.5, 0.5}, "KLDivLoss takes no label < 0"),
        (nn.KLDivLoss(log_target=True), {-5}, {0.5}, r"KLDivLoss(log_target=True) takes logarithms of probabilities"),
        (nn.MSELoss(), {-5, 5}, None, None),
        (lambda output, label: output.mean(), {-5, 5}, None, None),
    ],
)
def test_labels_out_of_the_range_of_a_loss_are_explained(loss: Any, valid: Any, invalid: Any, message: Any) -> None:
    assert explain_invalid_labels(loss, valid) is None
    if invalid:
        assert explain_invalid_labels(loss, invalid) == message
