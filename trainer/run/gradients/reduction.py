"""Average the gradients of a loop over the workers, in the backward pass of the last part of a batch."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from trainyard.errors import TrainyardError
from trainyard.trainer.model.sparse import refuse_sparse_gradients
from trainyard.trainer.run.gradients.buckets import Bucket, BucketReduction, fill_buckets
from trainyard.trainer.run.gradients.places import ENDED, LEFT, NO_FURTHER, NONE, Places
from trainyard.trainer.strategies.base import OnCommunication
from trainyard.trainer.world import World


class GradientReducer:
    """Average gradients over the workers: those of all networks, whichever of them a backward pass has reached.

    A gradient that only some workers have counts as zero on the others; one that none has stays away. Gradients that
    all workers have in common already stay what they are, so that several backward passes may add up.

    All workers expect that a step has as many backward passes as the step before, and that each of them reaches the
    same parameters as then. So the buckets of the expected pass are sent while it computes, without asking. A worker
    that does something else, such as leaving the loop, sends these buckets too, with zeros, and a flag in the last one.
    Only then the workers compare where they are, and raise an error or continue. A second flag is set where a pass has
    reached other parameters, and only then the workers exchange which ones.

    Args:
        world: The workers.
        on_communication: Called after each reduction.
    """

    def __init__(self, world: World, on_communication: OnCommunication) -> None:
        self._world, self._on_communication = world, on_communication
        self._parameters: dict[int, nn.Parameter] = {}
        self._places = Places(world)
        self._buckets: dict[int, list[Bucket]] = {}
        """The buckets of each backward pass of a step, by its number."""
        self._late: set[int] = set()
        self._hooks: dict[int, RemovableHandle] = {}
        self._reduction: BucketReduction | None = None
        self._overlaps = False
        self._step = self._calls = 0
        self._expected_calls = 1
        self._bytes_sent = 0

    @property
    def bytes_sent(self) -> int:
        """Bytes of gradients that this worker has sent."""
        return self._bytes_sent + (self._reduction.bytes_sent if self._reduction else 0)

    def add(self, network: nn.Module) -> None:
        """Reduce the gradients of a network too. Raises TrainyardError if they are sparse."""
        if self._world.size > 1:
            refuse_sparse_gradients(network, "a loop on several workers")
        self._parameters |= {id(parameter): parameter for parameter in network.parameters()}

    def reduces(self, tensor: Tensor) -> bool:
        """Return whether a tensor is a parameter of a network whose gradients are averaged."""
        return id(tensor) in self._parameters

    def begin(self, step: int, overlaps: bool) -> None:
        """Begin to average the gradients of a backward pass that follows. All workers must call this.

        Args:
            step: The number of the step in the training.
            overlaps: Whether gradients count as soon as the backward pass has computed them.

        Raises:
            TrainyardError: Another worker is at another step or backward pass, or the pass before has failed.
        """
        if self._world.size == 1:
            return
        self._check_finished()
        call = self._calls + 1
        if call > self._expected_calls:
            self._meet(step, call)
            self._expected_calls = call
        self._step, self._calls, self._overlaps = step, call, overlaps
        self._reduction = BucketReduction(self._buckets.get(call, []), self._world)

    def finish(self, loss: Tensor) -> Tensor:
        """Wait until the gradients are averaged, and return the sum of `loss` over all workers.

        Args:
            loss: The share of this worker in a loss.

        Raises:
            TrainyardError: Another worker is at another step or backward pass, or a gradient is sparse.
        """
        reduction, self._reduction = self._reduction, None
        if reduction is None:
            return loss
        wall, start = time.time_ns(), time.perf_counter_ns()
        own = {number for number, parameter in self._parameters.items() if parameter.grad is not None}
        deviates = own != set(reduction.parameters) or bool(reduction.late)
        total, unexpected, deviating = self._finish(reduction, loss, False, deviates)
        if unexpected:
            self._places.check(self._step, self._calls)
        if deviating:
            self._reduce_deviating(reduction, own)
        else:
            reduction.write(lambda _: True)
        self._bytes_sent += reduction.bytes_sent
        self._on_communication(wall, time.perf_counter_ns() - start, True)
        return total

    def end_step(self, step: int) -> None:
        """End a step. All workers must call this.

        Args:
            step: The number of the step in the training.

        Raises:
            TrainyardError: Another worker has a further backward pass, or the last one has failed.
        """
        self._check_finished()
        if self._world.size > 1 and self._calls < self._expected_calls:
            self._meet(step, NO_FURTHER if self._calls else NONE)
            self._expected_calls = max(self._calls, 1)
        self._calls = 0

    def end_epoch(self, step: int, is_left: bool) -> None:
        """End an epoch. All workers must call this.

        Args:
            step: The number of the last step.
            is_left: Whether the worker has left the loop.

        Raises:
            TrainyardError: Another worker has a further step, or does not leave the loop.
        """
        if self._world.size > 1:
            self._meet(step, LEFT if is_left else ENDED)

    @contextmanager
    def without_trace(self) -> Iterator[None]:
        """Make the gradients of the backward pass in the body zero: that of a worker without rows.

        A loss times 0 is not enough: 0 times NaN or infinity is NaN.
        """
        before = {number: parameter.grad for number, parameter in self._parameters.items()}
        for parameter in self._parameters.values():
            parameter.grad = None
        yield
        for number, parameter in self._parameters.items():
            if parameter.grad is not None or before[number] is not None:
                earlier = before[number]
                parameter.grad = torch.zeros_like(parameter) if earlier is None else earlier

    def remove_hooks(self) -> None:
        """Remove the hooks of the parameters."""
        for handle in self._hooks.values():
            handle.remove()
        self._hooks.clear()

    def _check_finished(self) -> None:
        if self._reduction is not None:
            raise TrainyardError(
                "batch.backward() has raised an exception before, when other workers may have averaged gradients "
                "already, and the loop has caught it. Let it end the task, which resumes from its last checkpoint."
            )

    def _meet(self, step: int, call: int) -> None:
        """Tell workers that are in the expected backward pass that this one is not, and compare where all are."""
        expected = self._calls + 1 if self._calls < self._expected_calls else 1
        reduction = BucketReduction(self._buckets.get(expected, []), self._world)
        self._finish(reduction, torch.zeros((), device=self._world.device), True, False)
        self._places.check(step, call)

    def _finish(
        self, reduction: BucketReduction, loss: Tensor, is_unexpected: bool, deviates: bool
    ) -> tuple[Tensor, bool, bool]:
        """Send the last bucket, and return the sum of the losses, and what any worker says of itself.

        Args:
            reduction: The reduction of the expected pass.
            loss: The share of this worker in the loss.
            is_unexpected: Whether this worker is elsewhere.
            deviates: Whether its pass has reached other parameters.
        """
        flags = torch.tensor([is_unexpected, deviates], dtype=torch.float64)
        sums = reduction.finish((loss, *flags), counts=not is_unexpected)
        if sums is None:
            total = self._world.sum(loss.double()).to(loss.dtype)
            sums = [0, *self._places.sum(flags)]
        else:
            total = torch.tensor(sums[0], dtype=loss.dtype)
        return total, sums[1] > 0, sums[2] > 0

    def _reduce_deviating(self, reduction: BucketReduction, own: set[int]) -> None:
        """Average what a worker has beside the buckets, and choose the buckets of the next step."""
        numbers = list(self._parameters)
        flags = [number in own for number in numbers] + [number in reduction.late for number in numbers]
        counts = self._places.sum(torch.tensor(flags, dtype=torch.float64))
        reached = {number for number, count in zip(numbers, counts, strict=False) if count}
        again = {number for number, count in zip(numbers, counts[len(numbers) :], strict=True) if count}
        sent = reached & set(reduction.parameters) - again
        reduction.write(lambda parameter: id(parameter) in sent)
        rest = BucketReduction(fill_buckets(self._select(reached - sent)), self._world)
        rest.finish(())
        rest.write(lambda _: True)
        reduction.bytes_sent += rest.bytes_sent
        self._late |= again
        self._buckets[self._calls] = fill_buckets(self._select(reached - self._late))
        for parameter in self._select(reached - self._hooks.keys()):
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]
                self._hooks[id(parameter)] = hook

    def _select(self, numbers: set[int]) -> Iterable[nn.Parameter]:
        return (parameter for number, parameter in self._parameters.items() if number in numbers)

    def _on_gradient(self, parameter: Tensor) -> None:
        if self._reduction and self._overlaps:
            self._reduction.add(parameter)  # type: ignore[arg-type]
