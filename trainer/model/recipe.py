"""The recipe: the declaration of a model and its training."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.fitted_state import FittedReference
from trainyard.schemas.heads import ONLY, name_column, name_metric
from trainyard.schemas.validation.params import convert_texts
from trainyard.trainer.data.reading.decoding import Augment, Decode
from trainyard.trainer.data.reading.jagged import Sequences, mask_name
from trainyard.trainer.model.heads import Head, name_prediction
from trainyard.trainer.user_code import import_object

if TYPE_CHECKING:
    from torchmetrics import Metric

Batch = Mapping[str, Tensor]
"""The columns of some rows, by name; the first dimension of each tensor is the rows."""

CATEGORIES = "categories"
"""The parameter of a recipe that gets the number of indices of each column of categories, and of classes."""

OWN_METRICS = ("epoch", "loss", "validation_loss", "rows_per_second", "bytes_per_step")
"""The names of the figures that every epoch has."""

Per = Literal["element", "channel", "all"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A model, and how it is trained.

    Attributes:
        model: The module to train. It is called with the `features` columns, in their order, as float tensors
            (rows, ...); integer columns other than uint8 stay integers, for embeddings. A variable-length column is,
            with `sequences="padded"`, two arguments: the values (rows, longest, ...), zero behind the end of each
            row, and a mask (rows, longest), true before it, which a batch holds as NAME_mask. With "nested" it is one
            nested tensor of torch's jagged layout.
        features: The column, or columns, that the model takes; or a dict of its keyword arguments, such as
            `{"input_ids": "tokens", "attention_mask": "tokens_mask"}` for a model of transformers. An output with an
            attribute `logits`, as such models have, is taken to be these.
        label: The label column.
        extra_columns: Further columns of a batch in training and validation, for `step` and `transform`: labels of
            other tasks, weights or masks, such as `extra_columns=["weight"]` with a step of
            `(functional.cross_entropy(model(batch), batch["label"], reduction="none") * batch["weight"]).mean()`.
            Evaluation and prediction do not need them.
        loss: `loss(output, label)` returns the mean over rows. With `classes` the default is cross entropy.
        optimizer: A function from the parameters to an optimizer, such as a class of `torch.optim`.
        learning_rate: The learning rate, which `optimizer` gets as `lr`. By default the optimizer's own.
        schedule: A function from the optimizer and the number of the scheduler's steps to a learning rate scheduler.
        schedule_by: Whether the scheduler takes a step after each "update" or each "epoch".
        normalize: Scale float and uint8 features by mean and standard deviation of the training split: for each
            "element", each "channel" (index of the first axis), or "all" elements alike. Decoded columns are not
            scaled.
        transform: A function from the columns of a worker's training batch to those to train on, which runs in a thread
            of its own. It returns as many rows as it gets, in each tensor: `lam.expand(rows)` for one value of all
            rows. The numbers of torch's random functions that take a generator (and so of most distributions, but not
            of dropout) depend there on the seed, the epoch, the step and the worker only.
        metrics: Metrics of torchmetrics on (output, label) of the validation split, by name; or some of the names
            `accuracy`, `precision`, `recall`, `f1`, `mae`, `mse`, `rmse` and `r2`.
        classes: The number of classes, if the label is a class: labels out of range are refused before training.
        heads: In place of `label`, `loss`, `metrics`, `classes` and `predict`, those of each of several outputs by its
            name, such as `{"kind": Head(classes=3), "size": Head(loss=nn.MSELoss())}`. The model returns a dict of
            outputs by these names, an object with such attributes, or a tuple of them in this order, and so does the
            output that `step` gets. The sum of the losses, each by its weight, is minimized. A row without a label
            of a head, null in the dataset, counts in neither its loss nor its metrics.
        sequences: Whether variable-length columns become "padded" or "nested" tensors.
        decode: The decoder of each binary column, such as `trainyard.trainer.decode_rgb` or `CenterCrop`, wherever the
            model is used.
        augment: A random change of decoded training rows, by column, or what decodes a random part of them in place of
            `decode`, such as `RandomResizedCrop`.
        step: `step(model, batch)` replaces the forward pass and the loss; it returns a mean over rows. Validation calls
            it too, without gradients: a step that computes some itself does so in `torch.enable_grad()`.
        predict: A function from the model's output to the columns of a prediction.
        start_from: The URI of a model artifact, or of a safetensors file, to load initial weights from. Tensors whose
            name or shape differs are not loaded, with a warning unless `reinitialize` names them. The prefixes
            `_orig_mod.`, `module.` and `model.` of torch.compile, DDP and Lightning may differ.
        reinitialize: Names of submodules and parameters that are not loaded from `start_from`.
        freeze: Names of submodules and parameters that are not trained.
        stored_masks: Columns in `features` that are named as masks of others are, and are columns of the dataset, as a
            training finds them.

    Raises:
        TrainyardError: Fields contradict each other.
    """

    model: nn.Module
    features: str | Sequence[str] | Mapping[str, str]
    label: str | None = None
    loss: Callable[[Any, Tensor], Tensor] | None = None
    optimizer: Callable[..., Optimizer] = torch.optim.AdamW
    learning_rate: float | None = None
    schedule: Callable[[Optimizer, int], LRScheduler] | None = None
    schedule_by: Literal["update", "epoch"] = "update"
    normalize: Per | None = None
    transform: Callable[[dict[str, Tensor]], dict[str, Tensor]] | None = None
    metrics: Mapping[str, Metric] | Sequence[str] = ()
    classes: int | None = None
    heads: Mapping[str, Head] = field(default_factory=dict)
    sequences: Sequences = "padded"
    decode: Mapping[str, Decode] = field(default_factory=dict)
    augment: Mapping[str, Augment] = field(default_factory=dict)
    step: Callable[[nn.Module, Batch], Tensor] | None = None
    extra_columns: Sequence[str] = ()
    predict: Callable[[Tensor], Mapping[str, Tensor]] = name_prediction
    start_from: str | None = None
    reinitialize: Sequence[str] = ()
    freeze: Sequence[str] = ()
    stored_masks: Sequence[str] = ()

    def __post_init__(self) -> None:

        if self.classes is not None and self.step is None and self.loss is None:
            object.__setattr__(self, "loss", nn.CrossEntropyLoss())
        if self.learning_rate is not None and not _takes(self.optimizer, "lr"):
            raise TrainyardError(
                f"Recipe: learning_rate={self.learning_rate} goes with an optimizer= that takes lr=, such as "
                "optim.SGD; set the rate in the function instead, or give it a parameter lr."
            )
        self._check_heads()
        if self.schedule_by not in ("update", "epoch"):
            raise TrainyardError(f"Recipe: schedule_by={self.schedule_by!r} is not valid; write 'update' or 'epoch'.")
        if self.sequences not in get_args(Sequences):
            raise TrainyardError(f"Recipe: sequences={self.sequences!r} is not valid; write 'padded' or 'nested'.")
        if self.keywords and self.sequences == "nested" and len(self.inputs) < len({*self.keywords.values()}):
            raise TrainyardError("Recipe: features= names a mask, which sequences='nested' has not; write 'padded'.")
        for head in self.heads_by_name.values():
            if own := [name for name in head.metrics if name in OWN_METRICS]:
                raise TrainyardError(
                    f"Recipe: metrics= has {own[0]!r}, which each epoch has already; choose another name."
                )
        if isinstance(self.extra_columns, str):
            raise TrainyardError(
                f"Recipe: extra_columns={self.extra_columns!r} is a text; write [{self.extra_columns!r}]."
            )
        if self.metrics and self.label is None:
            raise TrainyardError("Recipe: metrics= compare the output with a label; set label=.")

    @cached_property
    def heads_by_name(self) -> Mapping[str, Head]:
        """The heads by name; a recipe without `heads` has one, whose name is empty."""
        only = Head(label=self.label, loss=self.loss, metrics=self.metrics, classes=self.classes, predict=self.predict)
        return self.heads or {ONLY: only}

    @property
    def labels(self) -> dict[str, str]:
        """The label column of each head that has one."""
        return {name: head.label for name, head in self.heads_by_name.items() if head.label is not None}

    @cached_property
    def metrics_by_name(self) -> Mapping[str, Metric]:
        """The metrics of all heads; those of the head `kind` are named `kind/accuracy`."""
        return {
            name_metric(head, name): metric
            for head, part in self.heads_by_name.items() for name, metric in part.metrics_by_name.items()
        }  # fmt: skip

    def split_output(self, output: Any) -> dict[str, Any]:
        """Return the output of each head from that of the network; that of a recipe without `heads` is its only one."""
        return output if self.heads else {ONLY: output}

    def predict_columns(self, output: Any) -> Mapping[str, Tensor]:
        """Return the columns of a prediction from the output of the network."""
        if not self.heads:
            return self.predict(output)
        columns: dict[str, Tensor] = {}
        for head, part in self.heads.items():
            predicted = part.predict(output[head])
            if not isinstance(predicted, Mapping):
                raise TrainyardError(
                    f"predict of the head {head!r} returns a {type(predicted).__name__}; return a dict of tensors of "
                    "shape (rows, ...) by column, such as {'class': output.argmax(1)}."
                )
            named = {name_column(head, name): tensor for name, tensor in predicted.items()}
            if twice := [name for name in named if name in columns]:
                raise TrainyardError(
                    f"two heads of the recipe have the column {twice[0]!r} of a prediction; rename a head, or the "
                    "column in predict= of one."
                )
            columns |= named
        return columns

    def build_optimizer(self, parameters: Sequence[nn.Parameter]) -> Optimizer:
        """Return the optimizer of some parameters, with the recipe's learning rate if it has one."""
        rate = {} if self.learning_rate is None else {"lr": self.learning_rate}
        return self.optimizer(parameters, **rate)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The feature columns, in the order of the model's arguments."""
        if not isinstance(self.features, Mapping):
            return (self.features,) if isinstance(self.features, str) else tuple(self.features)
        masks = set(map(mask_name, self.features.values())).difference(self.stored_masks)
        return tuple(dict.fromkeys(name for name in self.features.values() if name not in masks))

    def find_masks(self, columns: Iterable[str]) -> Recipe:
        """Return the recipe for a dataset: of names such as `tokens_mask`, those of its columns are no masks."""
        named = self.keywords.values() if self.keywords else ()
        return replace(self, stored_masks=tuple(name for name in columns if name in named))

    @property
    def keywords(self) -> Mapping[str, str] | None:
        """The columns and masks by the model's keyword arguments; None if it takes them in their order."""
        return self.features if isinstance(self.features, Mapping) else None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that a training batch must have. The label of an autoencoder is one of its inputs."""
        return tuple(dict.fromkeys((*self.inputs, *self.labels.values(), *self.extra_columns)))

    def _check_heads(self) -> None:
        """Set the labels of heads that are named as theirs, and check that nothing is said twice."""
        both = [n for n in ("label", "classes", "loss", "metrics") if getattr(self, n) not in (None, (), {}, [])]
        if self.predict is not name_prediction:
            both.append("predict")
        if self.heads and both:
            raise TrainyardError(f"Recipe: {both[0]}= and heads= contradict each other; write {both[0]}= in the heads.")
        for name, head in self.heads.items():
            if not isinstance(head, Head):
                raise TrainyardError(
                    f"Recipe: heads={{{name!r}: ...}} is a {type(head).__name__}; write a trainyard.trainer.Head."
                )
            if not isinstance(name, str) or not name.isidentifier():
                raise TrainyardError(
                    f"Recipe: heads= has the name {name!r}, which is part of the names of columns; write letters, "
                    "digits and _."
                )
        if len({name.lower() for name in self.heads}) < len(self.heads):
            raise TrainyardError(f"Recipe: heads= has names that differ by case only: {', '.join(self.heads)}.")
        labeled = {name: replace(head, label=head.label or name) for name, head in self.heads.items()}
        object.__setattr__(self, "heads", labeled)


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Return whether a function has a parameter of this name, or of any name."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a builtin may have no signature
        return True
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())


def add_categories(path: str, params: Mapping[str, Any], fitted: FittedReference | None) -> dict[str, Any]:
    """Return the parameters of a recipe with the sizes of categories, if its function has a parameter `categories`.

    Args:
        path: The import path of the recipe.
        params: The parameters that are given.
        fitted: What the dataset was fitted by, if it was.

    Raises:
        TrainyardError: See `load`; or the function needs the sizes, and the dataset has none.
    """
    if CATEGORIES in params:
        return dict(params)
    parameter = inspect.signature(_find_function(path)).parameters.get(CATEGORIES)
    if fitted is None and parameter is not None and parameter.default is parameter.empty:
        raise TrainyardError(
            f"recipe {path!r} has a parameter {CATEGORIES!r}, the sizes of categories, but the dataset has none. "
            "Export it with categories= or label=."
        )
    return {**params, CATEGORIES: fitted.sizes} if fitted and parameter else dict(params)


def load(path: str, params: Mapping[str, Any]) -> Recipe:
    """Return the recipe of the function at `path` ("module:name"), called with `params`.

    The path may come from the document of a model: only a function that is annotated to return a Recipe is called.

    Raises:
        TrainyardError: The function cannot be imported or called, or is not annotated so, or returns something else.
    """
    function = _find_function(path)
    try:
        recipe = function(**convert_texts("recipe_params", function, params))
    except TypeError as error:
        raise TrainyardError(f"recipe {path!r} with recipe_params={dict(params)}: {error}.") from error
    if not isinstance(recipe, Recipe):
        raise TrainyardError(
            f"recipe {path!r} returned a {type(recipe).__name__}; return a trainyard.trainer.Recipe instead."
        )
    return recipe


def _find_function(path: str) -> Callable[..., Any]:
    """Return the function at `path`; see `load`."""
    module, _, name = path.partition(":") if isinstance(path, str) else ("", "", "")
    if not (module and name):
        raise TrainyardError(
            f"recipe={path!r} is not an import path. Write 'module:function': every worker imports the function."
        )
    function = import_object("recipe", path)
    if not _is_recipe_function(function):
        raise TrainyardError(
            f"recipe {path!r} is not called, because it does not declare that it returns a Recipe. "
            f"Write `def {name}(...) -> Recipe:`, with trainyard.trainer.Recipe."
        )
    return function  # type: ignore[no-any-return]


def _is_recipe_function(function: Any) -> bool:
    """Return whether a function is annotated to return a Recipe, be it as a class or as its name."""
    annotation = getattr(function, "__annotations__", {}).get("return")
    if not isinstance(annotation, str):
        return annotation is Recipe
    first, *rest = annotation.split(".")
    value = getattr(inspect.unwrap(function), "__globals__", {}).get(first)
    for name in rest:
        value = getattr(value, name, None)
    return value is Recipe
