"""A batch of a loop: the rows of a global batch that this worker trains on, or a part of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from trainyard.trainer.data.loader import split_batch


class Loop(Protocol):
    """What a batch needs of the loop that it belongs to."""

    def count_parts(self, count: int | None) -> int:
        """Return in how many parts a batch is processed."""

    def backward(self, loss: Tensor, batch: Batch, **options: Any) -> Tensor:
        """Add the gradient of a loss."""

    @property
    def is_sharded(self) -> bool:
        """Whether networks are, so that all workers have as many parts, some of them without rows."""

    def leave_out_rows(self) -> AbstractContextManager[None]:
        """Return the context of the passes of a part without rows."""

    def add_means(self, batch: Batch, means: Mapping[str, Tensor | float]) -> None:
        """Add means of the rows of a batch to the metrics of the epoch."""


@dataclass(eq=False)
class Batch(Mapping[str, Tensor]):
    """The rows of a global batch that this worker trains on, by column; or a part of them.

    On a worker without rows of a batch, `rows` is 0, and each column has one row. The worker takes part in all
    communication, and its row has no effect.

    Attributes:
        columns: The tensors (rows, ...), on the device, by column.
        rows: The number of rows of this worker.
        total: The number of rows of the global batch.
        first_row: The number of the first of these rows in the global batch.
        epoch: The epoch, from 0.
        step: The number of the global batch in its epoch, from 0.
        seed: Numbers that random numbers of the batch depend on.
        ends_epoch: Whether it is the last batch of its epoch.
        is_last: Whether it is the last part of a batch, after which gradients are averaged.
        trains: Whether it is one of `Run.steps`, and not of `Run.batches`.
    """

    loop: Loop
    columns: Mapping[str, Tensor]
    rows: int
    total: int
    first_row: int
    epoch: int
    step: int
    seed: tuple[int, ...]
    ends_epoch: bool = False
    is_last: bool = True
    trains: bool = True
    _draws: int = 0

    def __getitem__(self, name: str) -> Tensor:
        return self.columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)

    def parts(self, count: int | None = None) -> Iterator[Batch]:
        """Yield the rows in parts, each with a backward pass of its own, to save memory.

        Args:
            count: The number of parts, if there are as many rows; by default the option `micro_batches`, or more in a
                group that is smaller than it was.

        Each part has as many calls of `backward`, in the same order. With `strategy="fsdp"` all workers have as many
        parts: `rows` of some may be 0.
        """
        exactly = self.loop.is_sharded
        pieces = list(split_batch(dict(self.columns), self.rows, self.loop.count_parts(count), exactly))
        first_row, seed = self.first_row, self._count_draw()
        for number, (rows, columns) in enumerate(pieces, start=1):
            is_last = self.is_last and number == len(pieces)
            with self.loop.leave_out_rows() if self.rows and not rows else nullcontext():
                yield replace(
                    self, columns=columns, rows=rows, first_row=first_row, is_last=is_last, seed=seed, _draws=0
                )  # fmt: skip
            first_row += rows

    def backward(self, loss: Tensor, **options: Any) -> Tensor:
        """Compute gradients; after those of the last part they are the means over the rows of the global batch.

        Args:
            loss: The mean loss of the rows of this batch, or part.
            options: Those of torch's `backward`, such as `retain_graph`.

        Returns:
            The mean loss of the rows of the global batch; before its last part, of the rows of this part.
        """
        return self.loop.backward(loss, self, **options)

    def report(self, /, **means: Tensor | float) -> None:
        """Report means of the rows of this batch: those of an epoch are metrics of it, over all workers."""
        self.loop.add_means(self, means)

    def randn(self, *shape: int) -> Tensor:
        """Return normal random numbers of shape `(rows, *shape)`, which do not depend on the number of workers.

        Each worker draws the numbers of the global batch on the CPU, and takes those of its rows.
        """
        return self._draw(torch.randn, shape)

    def rand(self, *shape: int) -> Tensor:
        """Return uniform random numbers of shape `(rows, *shape)`, drawn as those of `randn`."""
        return self._draw(torch.rand, shape)

    def _draw(self, draw: Callable[..., Tensor], shape: tuple[int, ...]) -> Tensor:
        """Draw the numbers of all rows of the global batch, and return those of the own ones."""
        words = [number % 2**64 for number in self._count_draw()]
        seed = int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0])
        values = draw((self.total, *shape), generator=torch.Generator().manual_seed(seed))
        device = next(iter(self.columns.values())).device
        return values[self.first_row : self.first_row + max(self.rows, 1)].to(device)

    def _count_draw(self) -> tuple[int, ...]:
        """Return the seed of the next random numbers, or of those of the next parts."""
        self._draws += 1
        return (*self.seed, self._draws - 1)
