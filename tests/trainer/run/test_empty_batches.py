"""A pass over a row that does not count leaves no gradient and no buffer behind."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.distributed import is_initialized
from torch.distributed.nn.functional import all_reduce

from tests.trainer.workers import Workers
from trainyard.trainer.run.empty_batches import leave_no_trace
from trainyard.trainer.world import World


def test_gradients_are_zero_although_the_loss_is_nan_and_buffers_are_those_from_before() -> None:
    network = nn.Sequential(nn.Embedding(5, 4, sparse=True), nn.Flatten(), nn.Linear(12, 4), nn.BatchNorm1d(4))
    before = {name: buffer.clone() for name, buffer in network.named_buffers()}
    rows = torch.tensor([[0, 1, 1], [2, 3, 4]])
    with leave_no_trace(network):
        (network(rows).sum() / 0 * 0).backward()
        assert network[3].num_batches_tracked == 1
    assert all(parameter.grad.to_dense().eq(0).all() for parameter in network.parameters())
    assert all(torch.equal(buffer, before[name]) for name, buffer in network.named_buffers())
    network(rows).sum().backward()
    assert network[0].weight.grad.to_dense().isfinite().all() and network[3].bias.grad.eq(2).all()


class SynchronizedNorm(nn.SyncBatchNorm):
    """What torch computes on GPUs only, with communication in the forward and in the backward pass."""

    def forward(self, values: Tensor) -> Tensor:
        count = torch.full((values.shape[1],), values.numel() / values.shape[1])
        sums = torch.stack([values.sum([0, 2]), values.square().sum([0, 2]), count])
        mean, square, _ = ((total := all_reduce(sums) if is_initialized() else sums) / total[2])[..., None]
        self.running_mean = mean.detach()[:, 0]
        return (values - mean) / (square - mean.square() + self.eps).sqrt() * self.weight[:, None] + self.bias[:, None]


def pass_rows(world: World) -> list[list[float]]:
    """Return the gradients and buffers after a pass over rows, which all workers but the first do not have."""
    torch.manual_seed(7)
    network = nn.Sequential(
        nn.Linear(8, 8), nn.Unflatten(1, (2, 4)), SynchronizedNorm(2), nn.ReLU(inplace=True), nn.Flatten()
    )
    rows, target = torch.randn(5, 8), torch.randn(5, 8)
    with leave_no_trace(network) if world.rank else nullcontext():
        loss = (network(rows[:1] * 9) / 0).sum() * 0 if world.rank else ((network(rows) - target) ** 2).mean()
        loss.backward()
    gradients = [parameter.grad.ravel().tolist() for parameter in network.parameters()]
    return [*gradients, network[2].running_mean.tolist()]


@pytest.mark.ranks
def test_a_worker_without_rows_adds_none_to_a_synchronized_normalization() -> None:
    with Workers(2) as pair:
        alone, (first, second) = pass_rows(World()), pair(pass_rows)
    for expected, values in zip(alone, first, strict=True):
        torch.testing.assert_close(torch.tensor(values), torch.tensor(expected))
    assert not any(any(values) for values in second), "neither gradients nor a mean"
