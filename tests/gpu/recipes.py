"""Recipes for the tests on a GPU."""

from __future__ import annotations

import time
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainyard.trainer.data.reading.jagged import Sequences
from trainyard.trainer.model.recipe import Recipe

MS = 1e-3
OUT_OF_MEMORY = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB"
"""What torch 2.11 raises, for tests on a CPU."""


class Mlp(nn.Sequential):
    """Three layers, and the type in which they compute."""

    dtypes: ClassVar[set[torch.dtype]] = set()

    def __init__(self, width: int) -> None:
        super().__init__(nn.Linear(8, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 3))

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = super().forward(x)
        in_loop = self.training or torch.is_autocast_enabled(x.device.type)  # and not for the check of the model
        if in_loop and not torch.compiler.is_compiling():
            self.dtypes.add(output.dtype)
        return output


def build(model: nn.Module) -> Recipe:
    return Recipe(
        model=model, features="x", label="label", normalize="element", loss=nn.CrossEntropyLoss(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9),
    )  # fmt: skip


def mlp(width: int = 32) -> Recipe:
    return build(Mlp(width))


def numbers() -> Recipe:
    """Return a recipe whose model learns the number of a row, which all of the row's values are."""
    return Recipe(
        model=nn.Sequential(nn.Linear(256, 1), nn.Flatten(0)), features="x", label="label", normalize="element",
        loss=lambda output, label: (output - label / 1000).square().mean(),
        optimizer=lambda parameters: torch.optim.SGD(parameters, 1e-3),
    )  # fmt: skip


class Interrupted(Mlp):
    """Raise an error at a step, while a file exists that has its number."""

    def __init__(self, file: str) -> None:
        super().__init__(32)
        self._file, self._steps = Path(file), 0

    def forward(self, x: Tensor) -> Tensor:
        self._steps += self.training
        if self._file.exists() and self._steps == int(self._file.read_text()):
            raise RuntimeError("interrupted")
        return super().forward(x)


def interrupted(file: str) -> Recipe:
    return build(Interrupted(file))


class Failing(Mlp):
    """Raise an error on one worker at the fifth step."""

    def __init__(self, rank: int) -> None:
        super().__init__(32)
        self._rank, self._steps = rank, 0

    def forward(self, x: Tensor) -> Tensor:
        self._steps += self.training
        own_rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        if self._steps == 5 and own_rank == self._rank:
            raise RuntimeError("the model failed")
        return super().forward(x)


def failing(rank: int) -> Recipe:
    return build(Failing(rank))


class Hungry(nn.Linear):
    """Allocate more than the memory of the device."""

    def __init__(self) -> None:
        super().__init__(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_cuda:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        torch.empty(2 * torch.cuda.mem_get_info(x.device)[1], dtype=torch.uint8, device=x.device)
        return super().forward(x)


def hungry() -> Recipe:
    return build(Hungry())


class Expanding(nn.Linear):
    """Take memory in proportion to the rows; on a CPU, it is exhausted by more than `max_rows`."""

    bytes_per_row: ClassVar[int] = 0
    max_rows: ClassVar[int] = 10
    calls: ClassVar[list[int]] = []

    def __init__(self) -> None:
        super().__init__(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append(len(x))
        if x.is_cuda:
            torch.empty(len(x) * self.bytes_per_row, dtype=torch.uint8, device=x.device)
        elif len(x) > self.max_rows:
            raise torch.OutOfMemoryError(OUT_OF_MEMORY)
        return super().forward(x)


def expanding() -> Recipe:
    return build(Expanding())


class Busy(nn.Linear):
    """Keep the device busy for some milliseconds in each forward pass of training.

    Attributes:
        events: The events before and after, on a GPU.
        passes: The number of forward passes.
        prepared: The number of batches that were prepared.
        requests: How many batches the loop has asked for, if each is to be prepared only then.
    """

    events: ClassVar[list[tuple[torch.cuda.Event, torch.cuda.Event]]] = []
    passes: ClassVar[int] = 0
    prepared: ClassVar[int] = 0
    requests: ClassVar[int | None] = None

    def __init__(self, milliseconds: int) -> None:
        super().__init__(8, 3)
        self._milliseconds = milliseconds

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            Busy.passes += 1
            if x.is_cuda:
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                begin.record()
                torch.cuda._sleep(self._milliseconds * 1_000_000)  # cycles: some 0.6 ms each million
                end.record()
                self.events.append((begin, end))
            else:
                time.sleep(self._milliseconds * MS)
        return super().forward(x)

    @classmethod
    def measure_seconds(cls, milliseconds: int) -> float:
        """Return how long the device was busy since the last call."""
        torch.cuda.synchronize() if cls.events else None
        busy = sum(begin.elapsed_time(end) for begin, end in cls.events) * MS or cls.passes * milliseconds * MS
        cls.events.clear()
        cls.passes = cls.prepared = 0
        return busy


def busy(milliseconds: int, wait: float = 0.0) -> Recipe:
    """Return a recipe that keeps the device busy, and whose batches take `wait` seconds each to prepare."""

    def prepare(columns: dict[str, Tensor]) -> dict[str, Tensor]:
        deadline = time.monotonic() + 20
        while Busy.requests is not None and Busy.requests <= Busy.prepared and time.monotonic() < deadline:
            time.sleep(MS)
        Busy.prepared += 1
        time.sleep(wait)
        return columns

    return Recipe(
        model=Busy(milliseconds), features="x", label="label", loss=nn.CrossEntropyLoss(), transform=prepare,
        optimizer=lambda parameters: torch.optim.SGD(parameters, 0.05),
    )  # fmt: skip


class Embedded(nn.Module):
    """Use a variable-length column, padded or nested."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.last = nn.Embedding(16, 8), nn.Linear(8, 3)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            lengths = tokens.offsets().diff()  # type: ignore[operator]
            rows = torch.repeat_interleave(torch.arange(len(lengths), device=tokens.device), lengths)
            embedded = self.embedding(tokens.values())
            summed = torch.zeros(len(lengths), 8, device=tokens.device).index_add_(0, rows, embedded)
        else:
            summed = (self.embedding(tokens) * mask[..., None]).sum(1)
            lengths = mask.sum(1)
        return self.last(summed / lengths[:, None])


def embedded(sequences: Sequences) -> Recipe:
    return Recipe(
        model=Embedded(), features="tokens", label="label", loss=nn.CrossEntropyLoss(), sequences=sequences,
        optimizer=lambda parameters: torch.optim.Adam(parameters, 0.05),
    )  # fmt: skip
