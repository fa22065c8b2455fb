"""The gradients of a step: the backward passes of a batch, or of its parts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.trainer.run.batch import Batch
from trainyard.trainer.run.gradients.reduction import GradientReducer
from trainyard.trainer.world import World


class StepGradients:
    """Add up the gradients of a step, and average them over the workers.

    Args:
        world: The workers.
        reducer: Averages the gradients.
    """

    def __init__(self, world: World, reducer: GradientReducer) -> None:
        self._world, self._reducer = world, reducer
        self._step = self._calls = 0
        self._part: Batch | None = None
        self._sums: dict[int, Tensor] = {}

    def begin(self, step: int) -> None:
        """Begin a step, by its number in the training."""
        self._step, self._part = step, None
        self._sums.clear()

    def add(self, loss: Tensor, batch: Batch, **options: Any) -> Tensor:
        """Add the gradient of a loss, and average all of them if it is that of the last part of a batch.

        Where a part has several losses, the first one belongs to the first ones of the other parts, and so on.

        Returns:
            The mean loss of the rows of the global batch; before its last part, of the rows of this part.
        """
        share = batch.rows * self._world.size / batch.total
        if batch.is_last:
            self._reducer.begin(self._step, overlaps=batch.rows > 0)
        if batch.rows:
            (loss * share if share != 1 else loss).backward(**options)  # type: ignore[no-untyped-call]
        else:
            with self._reducer.without_trace():
                loss.backward(**options)  # type: ignore[no-untyped-call]
        self._calls = self._calls + 1 if batch is self._part else 0
        self._part = batch
        own = loss.detach()
        added = own.double() * batch.rows if batch.rows else torch.zeros_like(own, dtype=torch.float64)
        total = self._sums.pop(self._calls) + added if self._calls in self._sums else added
        if not batch.is_last:
            self._sums[self._calls] = total
            return own
        return self._reducer.finish(total / batch.total).to(loss.dtype)

    def end(self) -> None:
        """End a step.

        Raises:
            TrainyardError: The gradients of a part were not averaged, or other workers do not take the same step.
        """
        if self._sums:
            raise TrainyardError(
                "a part of the batch had a backward pass that its last part had not, so that gradients were not "
                "averaged over the workers. Call backward for each of batch.parts()."
            )
        self._reducer.end_step(self._step)

    def end_epoch(self, is_left: bool) -> None:
        """Check that all workers end an epoch, or leave the loop, after this step. Raises TrainyardError if not."""
        self._reducer.end_epoch(self._step, is_left)
