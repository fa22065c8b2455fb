"""A recipe's model behind the normalization of its inputs."""

from __future__ import annotations

import math
import re
import traceback
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column, Statistics
from trainyard.schemas.model_artifact import Normalization
from trainyard.trainer.data.reading.jagged import mask_name
from trainyard.trainer.model.recipe import Batch, Per

_TYPES = re.compile(r"dtype|scalar type|type \(")
"""What torch's errors about two tensors of different types contain."""
_OWN_CODE = str(Path(__file__).parents[2])
_SHAPES = re.compile(
    r"shapes cannot be multiplied|size mismatch|[Ss]izes? of tensor|must match|[Ee]xpected \d+D|Expected \d+-D"
    r"|to have \d+ channels|[Gg]iven normalized_shape|is invalid for input of size|should contain \d+ elements"
    r"|Dimension out of range|Output size is too small|[Kk]ernel size can't be greater"
)
"""What torch's errors about the shape of a tensor contain."""


def _copy_overlapping_buffers(network: nn.Module) -> None:
    """Give each element of a buffer memory of its own: that of an expanded tensor is smaller than what gloo writes to.

    Moving to a GPU does the same.
    """
    for module in network.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.layout == torch.strided and 0 in buffer.stride():
                module._buffers[name] = buffer.contiguous()


class Network(nn.Module):
    """Normalize the feature columns of a batch, and call the model with them.

    A padded column is two arguments of the model: its values, zero where they are padding, and its mask.

    Args:
        model: The recipe's model.
        inputs: The feature columns, in the order of the model's arguments.
        normalization: The normalization of each column that has one.
        keywords: The columns and masks by the model's keyword arguments; None if it takes them in their order.
        heads: The names of the model's heads, if the recipe names some.
    """

    def __init__(
        self,
        model: nn.Module,
        inputs: tuple[Column, ...],
        normalization: Mapping[str, Normalization],
        keywords: Mapping[str, str] | None = None,
        heads: Iterable[str] = (),
    ) -> None:
        super().__init__()
        self.model = model
        self._inputs, self._keywords, self._heads = inputs, keywords, tuple(heads)
        self._is_scaled = tuple(column.name in normalization for column in inputs)
        for number, column in enumerate(inputs):
            if self._is_scaled[number]:
                mean, scale = _build_buffers(normalization[column.name], column)
                self.register_buffer(f"mean_{number}", mean, persistent=False)
                self.register_buffer(f"scale_{number}", scale, persistent=False)
        _copy_overlapping_buffers(self)

    def train(self, mode: bool = True) -> Network:
        """Set the mode of all modules; those whose parameters are all frozen stay in evaluation mode."""
        super().train(mode)
        for module in self.model.modules() if mode else ():
            parameters = list(module.parameters())
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                module.eval()
        return self

    def forward(self, batch: Batch, step: int | None = None) -> Any:
        """Return the output of the model; with heads, a dict of their outputs.

        Args:
            batch: The columns, by name.
            step: The number of the step. With it the model also gets the whole batch, with normalized features: the
                arguments `batch` and `step`.
        """
        arguments = [self._build_arguments(number, batch) for number in range(len(self._inputs))]
        features = {name: values for argument in arguments for name, values in argument.items()}
        further = {} if step is None else {"batch": {**batch, **features}, "step": step}
        if self._keywords is None:
            output = self.model(*chain.from_iterable(argument.values() for argument in arguments), **further)
        else:
            output = self.model(**{name: features[column] for name, column in self._keywords.items()}, **further)
        if self._heads and step is None:
            return _split_output(output, self._heads)
        is_named = isinstance(output, Mapping) and hasattr(output, "logits")  # a ModelOutput of transformers
        return output.logits if is_named else output

    def describe_inputs(self) -> str:
        """Return the arguments of the model with their shapes, for errors."""
        sizes = {
            column.name: ["rows", *(["length"] if column.kind == "list" else []), *map(str, column.shape)]
            for column in self._inputs
        }
        return ", ".join(f"{name!r} of shape [{', '.join(shape)}]" for name, shape in sizes.items())

    def _build_arguments(self, number: int, batch: Batch) -> dict[str, Tensor]:
        """Return the values of a column, and those of its mask if it is padded, by name."""
        column = self._inputs[number]
        values = self._scale(number, batch[column.name])
        if column.kind != "list" or values.is_nested:
            return {column.name: values}
        mask = batch[mask_name(column.name)]
        if self._is_scaled[number]:
            values = values.masked_fill(~mask.reshape(*mask.shape, *(1 for _ in column.shape)), 0)
        return {column.name: values, mask_name(column.name): mask}

    def _scale(self, number: int, values: Tensor) -> Tensor:
        if values.dtype in (torch.uint8, torch.bool):
            values = values.float()
        if self._is_scaled[number]:  # before doubles, such as timestamps, lose digits
            values = (values - getattr(self, f"mean_{number}")) * getattr(self, f"scale_{number}")
        return values.float() if values.dtype == torch.float64 else values


def _split_output(output: Any, heads: tuple[str, ...]) -> dict[str, Any]:
    """Return the outputs of heads, in their order, from a dict, an object with attributes, or a tuple in this order."""
    if isinstance(output, tuple | list) and not hasattr(output, "_fields"):
        if len(output) != len(heads):
            raise TrainyardError(
                f"the model returns {len(output)} outputs, and the recipe has the heads {', '.join(heads)}. Return as "
                "many, in this order, or a dict by their names."
            )
        return dict(zip(heads, output, strict=True))
    parts = output if isinstance(output, Mapping) else {h: getattr(output, h) for h in heads if hasattr(output, h)}
    for head in heads:
        if head not in parts:
            kind = f"a dict of {', '.join(map(str, parts))}" if parts is output else f"a {type(output).__name__}"
            raise TrainyardError(
                f"the model returns no output of the head {head!r}, but {kind}. Return a dict by the names of heads, "
                "an object with such attributes, or a tuple in their order."
            )
    return {head: parts[head] for head in heads}


def explain_types(network: nn.Module, error: Exception) -> None:
    """Raise TrainyardError if `error` is about the types of tensors, and a parameter is not float32 as features are."""
    for name, parameter in network.named_parameters():
        if parameter.is_floating_point() and parameter.dtype != torch.float32 and _TYPES.search(str(error)):
            kind = str(parameter.dtype).removeprefix("torch.")
            raise TrainyardError(
                f"the parameter {name!r} is {kind}, and features are float32 ({error}). In the recipe, call "
                "model.float() and choose the precision of the training by precision='bfloat16', or convert the "
                "features in forward."
            ) from error


def explain_shapes(network: nn.Module, error: Exception) -> None:
    """Raise TrainyardError if `error` is about the shape of a tensor, with the shapes that the model gets."""
    if not (isinstance(network, Network) and _SHAPES.search(str(error))):
        return
    files = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    users = [file for file in files if "-packages" not in file[0] and not file[0].startswith(_OWN_CODE)]
    where = " at {}:{}".format(*users[-1]) if users else ""
    raise TrainyardError(
        f"the recipe's model and loss do not fit the shapes of the data{where}: {error}. The model gets "
        f"{network.describe_inputs()}. Let its layers take these shapes, or change those of the columns by shapes= of "
        "the export."
    ) from error


def compute_normalization(
    statistics: Mapping[str, Statistics], inputs: tuple[Column, ...], per: Per
) -> dict[str, Normalization]:
    """Return the normalization of each float and uint8 input, from the statistics of the training split.

    A constant element gets the standard deviation 1, so that it becomes 0.

    Args:
        statistics: The statistics of each column.
        inputs: The feature columns.
        per: Whether to normalize each element, each channel (index of the first axis), or all elements alike.

    Raises:
        TrainyardError: The dataset has no statistics of each element, or they are not finite.
    """
    return {
        column.name: _reduce(column, statistics[column.name], per)
        for column in inputs
        if column.type in ("float", "double", "uint8")
    }


def _reduce(column: Column, statistics: Statistics, per: Per) -> Normalization:
    elements = math.prod(column.shape)
    groups = {"element": elements, "channel": column.shape[0] if column.shape else 1, "all": 1}[per]
    if len(statistics.mean) < groups:
        known, instead = ("each channel", "channel") if len(statistics.mean) > 1 else ("all elements together", "all")
        raise TrainyardError(
            f"normalize={per!r}: column {column.name!r} has {elements} elements in a row, for which the dataset "
            f"has statistics of {known} only. Write normalize={instead!r}."
        )
    mean = torch.tensor(statistics.mean, dtype=torch.float64).reshape(groups, -1)
    std = torch.tensor(statistics.std, dtype=torch.float64).reshape(groups, -1)
    center = mean.mean(dim=1)
    std = _compute_root_mean_square(torch.hypot(std, mean - center[:, None]))
    if not (center.isfinite().all() and std.isfinite().all()):
        at = int((~(center.isfinite() & std.isfinite())).nonzero()[0])
        raise TrainyardError(
            f"normalize={per!r}: column {column.name!r} has the mean {center[at]:g} and the standard deviation "
            f"{std[at]:g} in the training split. Remove values that are not finite or too large in prepare, or write "
            "normalize=None."
        )
    std = torch.where(std > 1e-12 * center.abs(), std, torch.ones_like(std))
    return Normalization(mean=tuple(center.tolist()), std=tuple(std.tolist()), per=per)


def _compute_root_mean_square(values: Tensor) -> Tensor:
    """Return the root mean square of each row; squares of the values themselves may overflow, or become 0."""
    largest = values.amax(dim=1).clamp(min=torch.finfo(values.dtype).tiny)
    return (values / largest[:, None]).square().mean(dim=1).sqrt() * largest


def _build_buffers(normalization: Normalization, column: Column) -> tuple[Tensor, Tensor]:
    """Return the mean and the reciprocal of the standard deviation, in the precision of the column."""
    dtype = torch.float64 if column.type == "double" else torch.float32
    mean = torch.tensor(normalization.mean, dtype=torch.float64)
    scale = (1 / torch.tensor(normalization.std, dtype=torch.float64)).clamp(max=torch.finfo(dtype).max)
    if normalization.per == "element":
        target: tuple[int, ...] = column.shape
    elif normalization.per == "channel":
        target = (-1, *(1 for _ in column.shape[1:]))
    else:
        target = (1,) * len(column.shape)
    return mean.reshape(target).to(dtype), scale.reshape(target).to(dtype)
