"""The recipe: what a user writes to be trained."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainyard.errors import TrainyardError
from trainyard.trainer.data.decoding import Augment, Decode
from trainyard.trainer.data.jagged import Sequences

if TYPE_CHECKING:
    from torchmetrics import Metric

Batch = Mapping[str, Tensor]
"""The columns of some rows, by name; the first dimension of each tensor is the rows."""

Per = Literal["element", "channel", "all"]


def _as_prediction(output: Tensor) -> dict[str, Tensor]:
    return {"prediction": output}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model and how it learns.

    `model` is called with the `features` columns, in their order, as float tensors `(rows, *shape)`; integer columns
    other than uint8 stay integers, for embeddings. A column whose rows differ in length is, with
    `sequences="padded"`, two arguments: `(rows, longest, *shape)`, zero behind each row's end, and a mask (rows,
    longest), true before it, which a batch holds as NAME_mask; with "nested" it is one, of torch's jagged layout.
    `loss(output, label)` is a mean over rows. `optimizer` gets the parameters; `schedule` gets the optimizer and
    how often its scheduler will be stepped: after each update, or each epoch, as `schedule_by` says.

    `normalize` scales float and uint8 features by the mean and standard deviation of the training
    split: for each element, for each index of the first axis ("channel"), or one for all elements.
    `decode` says what each row of a binary column becomes, such as `trainer.images.rgb`, wherever the model is used;
    `augment` changes what it becomes in training, at random. `normalize` leaves such columns as they are.
    `transform` changes whole training batches (augmentation), in a thread of its own.
    `metrics` are computed on the validation split from (output, label).
    `classes` is the number of classes when the label is one: labels outside are refused early.
    `step(model, batch)` replaces the common forward pass and loss: it returns a mean over rows.
    `predict` names the columns of a prediction, given the model's output.
    `start_from`, a bundle's URI or that of a file of safetensors, is where training gets its first weights from, as far
    as names and shapes are the same, but for submodules and parameters in `reinitialize`; those in `freeze` stay as they are.
    """

    model: nn.Module
    features: str | Sequence[str]
    label: str | None = None
    loss: Callable[[Any, Tensor], Tensor] | None = None
    optimizer: Callable[[Iterable[nn.Parameter]], Optimizer] = torch.optim.AdamW
    schedule: Callable[[Optimizer, int], LRScheduler] | None = None
    schedule_by: Literal["update", "epoch"] = "update"
    normalize: Per | None = None
    transform: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    classes: int | None = None
    sequences: Sequences = "padded"
    decode: Mapping[str, Decode] = field(default_factory=dict)
    augment: Mapping[str, Augment] = field(default_factory=dict)
    step: Callable[[nn.Module, Batch], Tensor] | None = None
    predict: Callable[[Tensor], Mapping[str, Tensor]] = _as_prediction
    start_from: str | None = None
    reinitialize: Sequence[str] = ()
    freeze: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.step is None and (self.loss is None or self.label is None):
            raise TrainyardError("Recipe: give loss= and label=, or a step= of your own that returns the loss.")
        if self.schedule_by not in ("update", "epoch"):
            raise TrainyardError(f"Recipe: schedule_by={self.schedule_by!r}; write 'update' or 'epoch'.")
        if self.sequences not in get_args(Sequences):
            raise TrainyardError(f"Recipe: sequences={self.sequences!r}; write 'padded' or 'nested'.")
        if self.metrics and self.label is None:
            raise TrainyardError("Recipe: metrics= compare the output with a label; name it with label=.")

    @property
    def inputs(self) -> tuple[str, ...]:
        """The feature columns, in the order in which the model takes them."""
        return (self.features,) if isinstance(self.features, str) else tuple(self.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns a training batch must hold."""
        return self.inputs if self.label is None else (*self.inputs, self.label)


def load(path: str, params: Mapping[str, Any]) -> Recipe:
    """Call the function at `path` (`module:name`) with `params`. Raises TrainyardError."""
    module, name = path.split(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise TrainyardError(
            f"recipe {path!r} cannot be imported: {type(error).__name__}: {error}. "
            f"Check that {name} is defined in {module} and that its imports exist where the gang runs."
        ) from error
    try:
        recipe = function(**params)
    except TypeError as error:
        raise TrainyardError(f"recipe {path!r} with recipe_params={dict(params)}: {error}.") from error
    if not isinstance(recipe, Recipe):
        raise TrainyardError(f"recipe {path!r} returned a {type(recipe).__name__}; it must return a trainer.Recipe.")
    return recipe
