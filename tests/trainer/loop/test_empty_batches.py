"""A pass over a row that does not count leaves no gradient and no buffer behind."""

from __future__ import annotations

import torch
from torch import nn

from trainyard.trainer.loop.empty_batches import leave_no_trace


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
