"""The optimizer's state of workers that use different parameters, as the experts of a mixture."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, Optimizer

from tests.trainer.workers import Workers
from trainyard.schemas.specs.strategies import Averaging as Options
from trainyard.trainer.strategies.averaging import Averaging
from trainyard.trainer.strategies.local import broadcast_weights
from trainyard.trainer.world import World

pytestmark = pytest.mark.ranks


def broadcast_transposed(world: World) -> tuple[list[list[float]], list[float]]:
    """Broadcast a buffer that is transposed, and return it and what is beside it in memory."""
    memory = torch.arange(8.0) + 100 * world.rank
    network = nn.Module()
    network.register_buffer("transposed", memory[:6].view(2, 3).t())
    broadcast_weights(network, world)
    return network.get_buffer("transposed").tolist(), memory[6:].tolist()


def test_buffers_of_any_layout_are_broadcast(pair: Workers) -> None:
    values = [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert pair(broadcast_transposed) == [(values, [6.0, 7.0]), (values, [106.0, 107.0])]


def build(optimizer: str, experts: nn.ModuleList) -> Optimizer:
    return SGD(experts.parameters(), 0.1, momentum=0.9) if optimizer == "SGD" else Adam(experts.parameters(), 0.1)


def train(
    world: World, optimizer: str, sizes: list[int], used: list[list[int]], frequency: int = 1
) -> tuple[list[list[float]], dict[str, list[list[float]]], int]:
    """Take a step for each list of experts, of which each worker uses the one at its rank; expert n has gradient n + 1.

    Returns:
        The weights of all experts, the optimizer's state of each by name, and the bytes that this worker sent.
    """
    experts = nn.ModuleList(nn.Linear(size, 1, bias=False) for size in sizes)
    for parameter in experts.parameters():
        nn.init.zeros_(parameter)
    strategy = Averaging(Options(frequency=frequency), world)
    strategy.wrap_model(experts, lambda *_: None)
    wrapped = strategy.wrap_optimizer(build(optimizer, experts), 1)
    for experts_of_workers in used:
        number = experts_of_workers[world.rank % len(experts_of_workers)]
        (experts[number](torch.ones(1, sizes[number])).sum() * (number + 1)).backward()
        wrapped.step()
        wrapped.zero_grad()
        strategy.after_step()
    states: dict[str, list[list[float]]] = {}
    for parameter in experts.parameters():
        for name, value in wrapped.state.get(parameter, {}).items():
            states.setdefault(name, []).append(value.flatten().tolist())
    return [parameter.flatten().tolist() for parameter in experts.parameters()], states, strategy.bytes_sent


def test_a_state_that_a_worker_does_not_have_counts_as_zeros(pair: Workers) -> None:
    for weights, states, _ in pair(train, "SGD", [1, 1], [[0, 1]]):
        assert states["momentum_buffer"] == [[0.5], [1.0]], "the means of 1 and 0, and of 0 and 2"
        assert weights == [[pytest.approx(-0.05)], [pytest.approx(-0.1)]]


def test_workers_may_use_parameters_of_different_sizes(pair: Workers) -> None:
    for _, states, _ in pair(train, "SGD", [1, 3], [[0, 1]]):
        assert states["momentum_buffer"] == [[0.5], [1.0, 1.0, 1.0]]


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_workers_that_use_other_parameters_in_each_step_have_the_same_state(pair: Workers, optimizer: str) -> None:
    first, second = pair(train, optimizer, [1, 2, 3], [[0, 1], [1, 0], [2, 0], [2, 1]], 2)
    assert first == second
    assert all(len(values) == 3 for values in first[1].values())


def test_a_parameter_that_no_worker_uses_has_no_state(pair: Workers) -> None:
    for _, states, _ in pair(train, "Adam", [1, 1, 1], [[0, 2], [2, 0]]):
        assert {name: len(values) for name, values in states.items()} == {"step": 2, "exp_avg": 2, "exp_avg_sq": 2}


def test_a_parameter_that_is_used_later_is_averaged_from_then_on(pair: Workers) -> None:
    for _, states, _ in pair(train, "SGD", [1, 1], [[0, 0], [0, 0], [0, 1]]):
        assert states["momentum_buffer"][1] == [1.0], "the mean of 0 and 2"


def test_only_the_state_that_a_worker_has_is_sent(pair: Workers) -> None:
    """With two workers, each sends the bytes of what is averaged."""
    for _, _, sent in pair(train, "SGD", [1, 3], [[0], [0]]):
        assert sent == 2 * 4 * (1 + 3 + 1)
