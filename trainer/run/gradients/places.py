"""Check that all workers are at the same place of a training, before they exchange anything else there."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from trainyard.errors import TrainyardError
from trainyard.trainer.world import World

NONE, ENDED, LEFT, NO_FURTHER = 0, -1, -2, -3
"""What a worker compares in place of the number of a backward pass: it has none in a step, has ended an epoch, has left
the loop, or has no further one in a step."""


class Places:
    """Compare steps and backward passes over the workers, by numbers on the CPU: nothing waits for a GPU.

    Args:
        world: The workers.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._group = world.create_group() if world.backend == "nccl" else None

    def check(self, step: int, call: int) -> None:
        """Check that all workers are at the same place. All of them must call this.

        Args:
            step: The number of the step in the training.
            call: The number of the backward pass in this step, from 1; or `NONE`, `ENDED`, `LEFT` or `NO_FURTHER`.

        Raises:
            TrainyardError: A worker is at another place.
        """
        bounds = torch.tensor([step, -step, call, -call])  # all are equal if the maximum is the minimum
        dist.all_reduce(bounds, dist.ReduceOp.MAX, self._group)
        last_step, first_step, last_call, first_call = bounds.tolist()
        if last_step == -first_step and last_call == -first_call:
            return
        places = self._world.gather((step, call))
        other = next(rank for rank, place in enumerate(places) if place != places[0])
        raise TrainyardError(
            f"the workers do not take the same steps: rank 0 {_describe(*places[0])}, and rank {other} "
            f"{_describe(*places[other])}. Call batch.backward as often on each worker, also where batch.rows is "
            "0, and leave the loop at the same step; batch.backward returns the loss of all workers."
        )

    def sum(self, numbers: Tensor) -> list[float]:
        """Return the sums of numbers, a tensor on the CPU, over all workers, which are at the same place."""
        dist.all_reduce(numbers, group=self._group)
        return numbers.tolist()


def _describe(step: int, call: int) -> str:
    """Return where in a training a worker is."""
    if call in (ENDED, LEFT):
        return f"has {'left the loop' if call == LEFT else 'ended the epoch'} after step {step + 1}"
    if call in (NONE, NO_FURTHER):
        return f"has {'none' if call == NONE else 'no further one'} in step {step + 1}"
    return f"is at backward pass {call} of step {step + 1}"
