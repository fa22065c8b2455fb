"""When low-rank compression starts, also after a resume."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.model_artifact import Normalization
from trainyard.schemas.specs.strategies import Allreduce as Options
from trainyard.trainer.model.network import Network
from trainyard.trainer.strategies.allreduce import Allreduce
from trainyard.trainer.strategies.base import merge_rank_states
from trainyard.trainer.world import World

pytestmark = pytest.mark.ranks
START = 5
ELEMENTS = 32 * 32 + 32


class Scaled(nn.Linear):
    """A layer with a parameter that has no dimension."""

    def __init__(self) -> None:
        super().__init__(8, 3)
        self.scale = nn.Parameter(torch.tensor(1.0))


def test_powersgd_refuses_a_parameter_without_a_dimension() -> None:
    options = Options(name="allreduce", compression="powersgd")
    with pytest.raises(TrainyardError, match="cannot process the parameter 'scale', which has no dimension"):
        Allreduce(options, World(size=2)).wrap_model(Scaled(), lambda *_: None)


def count_dense_steps(world: World, lengths: list[int]) -> list[int]:
    """Train in several attempts of some steps, each resumed from the one before; return the uncompressed steps."""
    options = Options(name="allreduce", compression="powersgd", powersgd_rank=1, powersgd_start=START)
    model, counts, state = nn.Linear(32, 32), [], {}
    for steps in lengths:
        strategy = Allreduce(options, world)
        wrapped = strategy.wrap_model(model, lambda *_: None)
        strategy.restore(state)
        sent = [0]
        for _ in range(steps):
            wrapped(torch.ones(1, 32)).sum().backward()
            sent.append(strategy.bytes_sent)
        counts.append(sum(after - before == 4 * ELEMENTS for before, after in pairwise(sent)))
        state = strategy.state()
    return counts


@pytest.mark.parametrize(
    ("lengths", "dense"),
    [
        ([7], [5]),
        ([3, 6], [3, 2]),
        ([1, 1, 6], [1, 1, 3]),
        ([4, 4], [4, 2]),
        ([7, 4, 4], [5, 2, 2]),
    ],
)
def test_compression_starts_after_as_many_steps_of_all_attempts(
    pair: Workers, lengths: list[int], dense: list[int]
) -> None:
    """Each attempt has two uncompressed steps at least, until DDP has rebuilt its buckets."""
    assert pair(count_dense_steps, lengths) == [dense, dense]


def train_with_own_rows(world: World, wrapped: nn.Module, steps: int) -> None:
    generator = torch.Generator().manual_seed(world.rank)
    for _ in range(steps):
        wrapped(torch.randn(4, 32, generator=generator)).square().sum().backward()


def resume_errors(world: World, former: int) -> tuple[list[list[float]], list[float]]:
    """Resume from the states of `former` workers; return their errors, and that of this worker."""
    options = Options(name="allreduce", compression="powersgd", powersgd_rank=1, powersgd_start=2)
    before, resumed = Allreduce(options, world), Allreduce(options, world)
    train_with_own_rows(world, before.wrap_model(nn.Linear(32, 32), lambda *_: None), 4)
    states = (world.gather(before.rank_state()) * former)[:former]
    resumed.wrap_model(nn.Linear(32, 32), lambda *_: None)
    resumed.restore(before.state())
    resumed.restore_rank(merge_rank_states(states.__getitem__, former, world))
    return [state["error"].tolist() for state in states], resumed.rank_state()["error"].tolist()


def test_a_group_of_the_same_size_resumes_with_the_errors_of_each_worker(pair: Workers) -> None:
    (errors, first), (_, second) = pair(resume_errors, 2)
    assert any(errors[0]) and errors[0] != errors[1]
    assert [first, second] == errors


@pytest.mark.parametrize("former", [1, 3])
def test_a_group_of_another_size_has_the_same_errors_left_to_correct(pair: Workers, former: int) -> None:
    (errors, first), (_, second) = pair(resume_errors, former)
    expected = torch.tensor(errors).mean(0)
    assert torch.tensor([first, second]).mean(0).numpy() == pytest.approx(expected.numpy(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("steps", "warned"), [(START, True), (START + 1, False)])
def test_a_training_that_ends_before_compression_starts_has_a_warning(pair: Workers, steps: int, warned: bool) -> None:
    for warnings in pair(find_warnings, steps):
        assert [f"this training has {START}: nothing is compressed" in text for text in warnings] == [True] * warned


def find_warnings(world: World, steps: int) -> list[str]:
    strategy = Allreduce(Options(name="allreduce", compression="powersgd", powersgd_start=START), world)
    strategy.wrap_model(nn.Linear(32, 32), lambda *_: None)
    return strategy.find_warnings(steps)


def get_buffers_after_a_step(world: World) -> dict[str, list[float]]:
    """Return the buffers after a forward pass, before which those of each worker are its rank."""
    normalization = {"x": Normalization(mean=(0.0, 0.0), std=(1.0, 1.0), per="element")}
    column = Column(name="x", kind="tensor", type="float", shape=(2,))
    network = Network(nn.Sequential(nn.BatchNorm1d(2, momentum=0.0), nn.Linear(2, 1)), (column,), normalization)
    wrapped = Allreduce(Options(name="allreduce"), world).wrap_model(network, lambda *_: None)
    for buffer in network.buffers():
        buffer.fill_(world.rank)
    wrapped({"x": torch.randn(4, 2)})
    return {name: buffer.tolist() for name, buffer in network.named_buffers() if buffer.ndim}


def test_buffers_of_the_model_are_copied_in_each_step_and_constants_of_the_normalization_are_not(pair: Workers) -> None:
    _, second = pair(get_buffers_after_a_step)
    assert second == {
        "mean_0": [1, 1], "scale_0": [1, 1], "model.0.running_mean": [0, 0], "model.0.running_var": [0, 0],
    }  # fmt: skip
