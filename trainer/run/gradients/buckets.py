"""Send gradients to the other workers in buckets, while the backward pass computes others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from trainyard.errors import TrainyardError
from trainyard.trainer.strategies.base import ring_allreduce
from trainyard.trainer.world import World

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
"""The sizes of the first bucket, so that communication begins early, and of the others: those of DDP."""

Bucket = Sequence[nn.Parameter]


class BucketReduction:
    """Average the gradients of one backward pass over the workers, bucket by bucket.

    A bucket is sent when its gradients and the buckets before it are complete, the last one in `finish`. All workers
    have the same buckets. A parameter without a gradient counts as zero.

    Args:
        buckets: The buckets.
        world: The workers.

    Attributes:
        late: The parameters that got a further gradient after their bucket was sent, by `id`.
        bytes_sent: Bytes of gradients that this worker has sent.
    """

    def __init__(self, buckets: Sequence[Bucket], world: World) -> None:
        self._buckets, self._world = buckets, world
        self._number_of = {id(parameter): number for number, bucket in enumerate(buckets) for parameter in bucket}
        self._missing = [set(map(id, bucket)) for bucket in buckets]
        self._sent: list[tuple[Tensor, dist.Work]] = []
        self.late: set[int] = set()
        self.bytes_sent = 0

    @property
    def parameters(self) -> Iterable[int]:
        """The parameters of all buckets, by `id`."""
        return self._number_of.keys()

    def add(self, parameter: nn.Parameter) -> None:
        """Take the gradient of a parameter, which the backward pass has computed."""
        number = self._number_of.get(id(parameter))
        if number is None:
            return
        if number < len(self._sent):
            self.late.add(id(parameter))
        self._missing[number].discard(id(parameter))
        while len(self._sent) < len(self._buckets) - 1 and not self._missing[len(self._sent)]:
            self._send(())

    def finish(self, numbers: Sequence[Tensor], counts: bool = True) -> list[float] | None:
        """Send what is left, and wait for all buckets.

        Args:
            numbers: Further numbers.
            counts: Whether the gradients of this worker count; otherwise they are zero.

        Returns:
            The sums of the numbers over the workers; None if no bucket could take them along.
        """
        takes_along = bool(self._buckets) and _has_space(self._buckets[-1])
        while len(self._sent) < len(self._buckets):
            is_last = len(self._sent) == len(self._buckets) - 1
            self._send(numbers if is_last and takes_along else (), counts)
        for _, work in self._sent:
            work.wait()
        return (self._sent[-1][0][-len(numbers) :] * self._world.size).tolist() if takes_along else None

    @torch.no_grad()
    def write(self, is_valid: Callable[[nn.Parameter], bool]) -> None:
        """Replace the gradients of parameters by the averages.

        Args:
            is_valid: Whether the average of a parameter counts.
        """
        for bucket, (flat, _) in zip(self._buckets, self._sent, strict=True):
            sizes = [parameter.numel() for parameter in bucket]
            for parameter, values in zip(bucket, torch.split(flat[: sum(sizes)], sizes), strict=True):
                if is_valid(parameter):
                    if parameter.grad is None:
                        parameter.grad = torch.zeros_like(parameter)
                    parameter.grad.copy_(values.view_as(parameter))

    @torch.no_grad()
    def _send(self, numbers: Sequence[Tensor], counts: bool = True) -> None:
        bucket = self._buckets[len(self._sent)]
        values = [_flatten(parameter, counts) for parameter in bucket]
        flat = torch.cat([*values, *(number.to(values[0].dtype).reshape(1) for number in numbers)])
        flat.div_(self._world.size)
        self._sent.append((flat, dist.all_reduce(flat, async_op=True)))
        self.bytes_sent += ring_allreduce(flat.nbytes - len(numbers) * flat.itemsize, self._world.size)


def fill_buckets(parameters: Iterable[nn.Parameter]) -> list[Bucket]:
    """Return the parameters in buckets of one type and a limited size, in the order of a backward pass: the last first.

    Args:
        parameters: The parameters in the order of their networks.
    """
    by_type: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter in reversed(list(parameters)):
        by_type.setdefault(parameter.dtype, []).append(parameter)
    buckets: list[list[nn.Parameter]] = []
    for values in by_type.values():
        size, limit = 0, 0
        for parameter in values:
            if size + parameter.nbytes > limit:
                size, limit = 0, BUCKET_BYTES if buckets else FIRST_BUCKET_BYTES
                buckets.append([])
            buckets[-1].append(parameter)
            size += parameter.nbytes
    return buckets  # type: ignore[return-value]


def _flatten(parameter: nn.Parameter, counts: bool) -> Tensor:
    if parameter.grad is None or not counts:
        return torch.zeros(parameter.numel(), dtype=parameter.dtype, device=parameter.device)
    if parameter.grad.is_sparse:
        raise TrainyardError(
            f"a loop on several workers cannot process the sparse gradient of a parameter of shape "
            f"{list(parameter.shape)}. Write sparse=False where its gradient comes from."
        )
    return parameter.grad.detach().reshape(-1)


def _has_space(bucket: Bucket) -> bool:
    """Return whether the bucket can take numbers along: what the CPU reads does not have to wait for a GPU."""
    return bucket[0].device.type == "cpu" and bucket[0].dtype in (torch.float32, torch.float64)
