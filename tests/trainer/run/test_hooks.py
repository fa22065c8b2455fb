"""Hooks of torch that are in place while a loop runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from trainyard.trainer.run.hooks import undo_buffers


class Counting(nn.Module):
    """Batch normalization within a module that counts passes; a row of ten values is refused."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        self.passes += 1
        return self.norm(rows)


@pytest.fixture
def network() -> Iterator[Counting]:
    torch.manual_seed(0)
    network = Counting()
    network(torch.rand(4, 2))
    with undo_buffers():
        yield network


def read(network: nn.Module) -> dict[str, torch.Tensor]:
    return {name: buffer.clone() for name, buffer in network.named_buffers()}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(first[name].equal(second[name]) for name in first)


def test_a_forward_pass_leaves_buffers_as_they_were_and_a_backward_pass_follows(network: Counting) -> None:
    before = read(network)
    output = network(torch.rand(4, 2)).sum() + network.norm(torch.rand(4, 2)).sum()
    assert equal(read(network), before)
    output.backward()
    assert network.norm.weight.grad is not None


def test_what_else_changes_a_buffer_stays(network: Counting) -> None:
    averaged = AveragedModel(network)
    network(torch.rand(4, 2))
    network.passes += 5
    averaged.update_parameters(network)
    assert (network.passes.item(), averaged.n_averaged.item()) == (6, 1)


def test_after_a_pass_that_failed_the_next_one_is_undone_too(network: Counting) -> None:
    before = read(network)
    with pytest.raises(ValueError, match="expected 2D or 3D"):
        network(torch.rand(10))
    network(torch.rand(4, 2))
    assert equal(read(network), before)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_a_compiled_network_is_undone_too(network: Counting) -> None:
    before = read(network)
    torch.compile(network, backend="eager")(torch.rand(4, 2)).sum().backward()
    assert equal(read(network), before)
