"""The options of a training that a loop has to use by itself."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.train import TrainOptions


class UsedOptions:
    """Give a loop what `precision` and `micro_batches` mean, and note that it has asked.

    Args:
        options: The options of the training.
        device: The device of this worker.
        micro_batches: In how many parts this worker processes a batch: more than the option says where a group has
            fewer workers than it may have.
    """

    def __init__(self, options: TrainOptions, device: torch.device, micro_batches: int) -> None:
        self._options, self._device, self._micro_batches = options, device, micro_batches
        self._autocasts = self._splits = False

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context of a forward pass in the option `precision`."""
        self._autocasts = True
        if self._options.precision == "float32":
            return nullcontext()
        return torch.autocast(self._device.type, dtype=getattr(torch, self._options.precision))

    def count_parts(self, count: int | None) -> int:
        """Return in how many parts a batch is processed: `count`, or as the option `micro_batches` says."""
        self._splits = True
        return count or self._micro_batches

    def check(self) -> None:
        """Check that the loop has used the options that it has to. Raises TrainyardError if not."""
        if self._options.precision != "float32" and not self._autocasts:
            raise TrainyardError(
                f"precision={self._options.precision!r}, but the loop has not used it in its first epoch. Compute the "
                "loss in `with run.autocast():`, or remove the option."
            )
        if self._options.micro_batches > 1 and not self._splits:
            raise TrainyardError(
                f"micro_batches={self._options.micro_batches}, but the loop has not used it in its first epoch. "
                "Process each batch in `for part in batch.parts():`, or remove the option."
            )
