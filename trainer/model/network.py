"""The network: a recipe's model behind the normalization of its inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import chain

import torch
from torch import Tensor, nn

from trainyard.errors import TrainyardError
from trainyard.schemas.manifest import Column, Statistics
from trainyard.schemas.model_artifact import Normalization
from trainyard.trainer.data.jagged import mask_name
from trainyard.trainer.model.recipe import Batch, Per


class Network(nn.Module):
    """Takes columns by name, scales them, and calls the model with them in the order of `inputs`.

    A padded column is two arguments: its values, zero where they are padding, and its mask.
    """

    def __init__(
        self, model: nn.Module, inputs: tuple[Column, ...], normalization: Mapping[str, Normalization]
    ) -> None:
        super().__init__()
        self.model = model
        self._inputs = inputs
        self._scaled = tuple(column.name in normalization for column in inputs)
        for number, column in enumerate(inputs):
            if self._scaled[number]:
                mean, scale = _buffers(normalization[column.name], column.shape)
                self.register_buffer(f"mean_{number}", mean, persistent=False)
                self.register_buffer(f"scale_{number}", scale, persistent=False)

    def train(self, mode: bool = True) -> Network:
        """As of any module, but that what is frozen is not trained."""
        super().train(mode)
        for module in self.model.modules() if mode else ():
            parameters = list(module.parameters())
            if parameters and not any(parameter.requires_grad for parameter in parameters):
                module.eval()
        return self

    def forward(self, batch: Batch) -> Tensor:
        return self.model(*chain.from_iterable(self._arguments(number, batch) for number in range(len(self._inputs))))  # type: ignore[no-any-return]

    def _arguments(self, number: int, batch: Batch) -> tuple[Tensor, ...]:
        column = self._inputs[number]
        values = self._prepared(number, batch[column.name])
        if column.kind != "list" or values.is_nested:
            return (values,)
        own = batch[mask_name(column.name)]
        if self._scaled[number]:
            values = values.masked_fill(~own.reshape(*own.shape, *(1 for _ in column.shape)), 0)
        return values, own

    def _prepared(self, number: int, values: Tensor) -> Tensor:
        if values.dtype in (torch.uint8, torch.bool, torch.float64):
            values = values.float()
        if self._scaled[number]:
            mean: Tensor = getattr(self, f"mean_{number}")
            scale: Tensor = getattr(self, f"scale_{number}")
            values = (values - mean) * scale
        return values


def normalization(
    statistics: Mapping[str, Statistics], inputs: tuple[Column, ...], per: Per
) -> dict[str, Normalization]:
    """The scaling of each float and uint8 input, from the statistics of the training split.

    A constant element has standard deviation 1 here, so that it becomes 0.
    """
    return {
        column.name: _reduced(column, statistics[column.name], per)
        for column in inputs
        if column.type in ("float", "double", "uint8")
    }


def _reduced(column: Column, figures: Statistics, per: Per) -> Normalization:
    elements = math.prod(column.shape)
    groups = {"element": elements, "channel": column.shape[0] if column.shape else 1, "all": 1}[per]
    have = len(figures.mean)
    if have < groups:
        raise TrainyardError(
            f"normalize={per!r}: column {column.name!r} has {elements} elements in a row, for which the dataset "
            "holds statistics of each channel alone. Write normalize='channel'."
        )
    mean = torch.tensor(figures.mean, dtype=torch.float64).reshape(groups, -1)
    square = torch.tensor(figures.std, dtype=torch.float64).reshape(groups, -1) ** 2 + mean**2
    center = mean.mean(dim=1)
    std = (square.mean(dim=1) - center**2).clamp(min=0).sqrt()
    std = torch.where(std > 1e-12 * center.abs().clamp(min=1), std, torch.ones_like(std))
    return Normalization(mean=tuple(center.tolist()), std=tuple(std.tolist()), per=per)


def _buffers(scaling: Normalization, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    mean = torch.tensor(scaling.mean, dtype=torch.float64)
    scale = 1 / torch.tensor(scaling.std, dtype=torch.float64)
    if scaling.per == "element":
        target: tuple[int, ...] = shape
    elif scaling.per == "channel":
        target = (-1, *(1 for _ in shape[1:]))
    else:
        target = (1,) * len(shape)
    return mean.reshape(target).float(), scale.reshape(target).float()
