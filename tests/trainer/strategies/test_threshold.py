"""Messages of the largest elements: every part of a step is sent now or later."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.trainer.workers import Workers
from trainyard.errors import TrainyardError
from trainyard.schemas.specs.strategies import Threshold as Options
from trainyard.trainer.strategies import threshold as module
from trainyard.trainer.strategies.base import merge_rank_states
from trainyard.trainer.strategies.threshold import (
    BLOCK,
    Threshold,
    adapt,
    compute_capacity,
    decode,
    encode,
    find_threshold,
)
from trainyard.trainer.world import World


@pytest.mark.slow
@given(
    values=st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=200),
    threshold=st.floats(1e-3, 5),
    capacity=st.integers(1, 50),
    offset=st.sampled_from([0, BLOCK - 100, 3 * BLOCK]),
)
def test_what_is_not_sent_stays_in_the_residual(
    values: list[float], threshold: float, capacity: int, offset: int
) -> None:
    """Also of elements in several blocks."""
    before = torch.cat([torch.zeros(offset), torch.tensor(values)])
    rest = before.clone()
    indices = (rest.abs() > threshold).nonzero().squeeze(1)
    message = encode(rest, indices, min(capacity, len(values)))
    sent = decode(message.view(1, -1), torch.empty(len(before)))
    assert torch.equal(sent + rest, before)
    assert int((sent != 0).sum()) == min(len(indices), capacity, len(values))
    kept = before[sent == 0].abs()
    if len(indices) > capacity and len(kept):
        assert before[sent != 0].abs().min() >= kept.max(), "the largest are sent first"


def test_messages_of_several_workers_are_averaged() -> None:
    messages = []
    for sign in (1, -1, 1):
        rest = torch.tensor([0.0, sign * 3.0, 0.0, 2.0])
        messages.append(encode(rest, (rest.abs() > 1).nonzero().squeeze(1), 4))
        assert rest.tolist() == [0, 0, 0, 0]
    assert decode(torch.stack(messages), torch.empty(4)).tolist() == pytest.approx([0, 1, 0, 2])


def test_a_message_without_elements_decodes_to_zeros() -> None:
    rest = torch.tensor([0.5, -0.5])
    message = encode(rest, torch.empty(0, dtype=torch.int64), 1)
    assert decode(message.view(1, -1), torch.empty(2)).tolist() == [0, 0]
    assert rest.tolist() == [0.5, -0.5]


def test_the_rounding_error_of_an_element_stays_in_the_residual() -> None:
    rest = torch.tensor([1 + 2**-10])
    message = encode(rest, torch.tensor([0]), 1)
    assert decode(message.view(1, -1), torch.empty(1)).tolist() == [1.0]
    assert rest.tolist() == [2**-10]


@given(count=st.integers(0, 10**7), target=st.integers(1, 1000), steps=st.integers(1, 30))
def test_a_threshold_follows_the_number_of_elements_that_exceed_it(count: int, target: int, steps: int) -> None:
    threshold = 1.0
    for _ in range(steps):
        before, threshold = threshold, adapt(threshold, count, target)
        assert before / 2 <= threshold <= before * 2
        assert (threshold > before) == (count > target)
        assert (threshold < before) == (count < target)


def test_the_first_threshold_is_what_the_largest_elements_reach() -> None:
    assert find_threshold(torch.tensor([0.5, -4.0, 3.0, 0.0]), 3) == 0.5


def test_a_threshold_does_not_oscillate() -> None:
    """With random gradients, after some steps about the target number of elements exceeds the threshold."""
    generator = torch.Generator().manual_seed(0)
    rest, threshold, target = torch.zeros(20_000), 1e-3, 200
    counts = []
    for _ in range(150):
        rest += torch.randn(len(rest), generator=generator)
        indices = (rest.abs() > threshold).nonzero().squeeze(1)
        threshold = adapt(threshold, len(indices), target)
        encode(rest, indices, target)
        counts.append(len(indices))
    assert all(target / 2 < count < target * 2 for count in counts[100:]), counts


@pytest.mark.parametrize(
    ("size", "density", "workers", "capacity"),
    [
        (100_000, 0.001, 2, 100),
        (100_000, 0.25, 2, 25_000),
        (100_000, 0.25, 8, 0),
        (1000, 0.001, 2, 16),
        (17, 0.1, 2, 0),
    ],
)
def test_a_message_has_room_for_a_fraction_of_the_elements_unless_all_of_them_take_less(
    size: int, density: float, workers: int, capacity: int
) -> None:
    """A ring sends 2/n of the gradient for each worker; gathering sends each message to all other workers."""
    assert compute_capacity(size, density, workers) == capacity


def restore(states: list[dict[str, Tensor]], world: World) -> Threshold:
    """Return the strategy of one worker of a group, resumed from the states of another group."""
    strategy = Threshold(Options(name="threshold"), World())
    strategy.wrap_model(nn.Linear(2, 1, bias=False), lambda *_: None)
    strategy.restore_rank(merge_rank_states(states.__getitem__, len(states), world))
    return strategy


def build_state(residual: list[float], threshold: float) -> dict[str, Tensor]:
    return {"residual": torch.tensor(residual), "thresholds": torch.tensor([threshold], dtype=torch.float64)}


STATES = [build_state([1.0, -2.0], 0.1), build_state([3.0, 4.0], 0.2), build_state([-1.0, 7.0], 0.3)]


def list_left(world: World, former: int) -> list[float]:
    """Return the residual of one worker of a group that resumes from the states of `former` workers."""
    return restore(STATES[:former], world).rank_state()["residual"].tolist()


@pytest.mark.ranks
@pytest.mark.parametrize(("former", "mean"), [(1, [1.0, -2.0]), (2, [2.0, 1.0]), (3, [1.0, 3.0])])
def test_a_group_of_any_size_has_the_same_changes_left_to_send(pair: Workers, former: int, mean: list[float]) -> None:
    """The change of the weights is the mean over workers, so the mean of what they have left is the same."""
    assert torch.tensor(pair(list_left, former)).mean(0).tolist() == pytest.approx(mean)
    assert list_left(World(), former) == pytest.approx(mean)


def test_a_group_of_the_same_size_resumes_with_the_residuals_and_thresholds_of_each_worker() -> None:
    for rank, state in enumerate(STATES):
        resumed = restore(STATES, World(rank, len(STATES))).rank_state()
        assert {name: value.tolist() for name, value in resumed.items()} == {
            name: value.tolist() for name, value in state.items()
        }


def test_a_single_worker_adds_what_a_group_has_left_to_send_to_its_first_step() -> None:
    strategy = restore(STATES, World())
    weight = next(strategy._network.parameters())
    before = weight.detach().clone()
    for _ in range(2):
        strategy.after_step()
        assert (weight - before).tolist() == [pytest.approx([1.0, 3.0])]
    assert strategy.rank_state()["residual"].tolist() == [0.0, 0.0]


def test_a_message_has_the_count_of_each_block_and_value_and_index_of_each_element() -> None:
    rest = torch.zeros(2 * BLOCK)
    indices = torch.tensor([1, BLOCK - 1, BLOCK + 2])
    rest[indices] = torch.tensor([1.0, -2.0, 0.5])
    message = encode(rest, indices, 5)
    assert message.dtype == torch.int32
    assert message[:2].tolist() == [2, 1]
    assert [hex(entry & 0xFFFFFFFF) for entry in message[2:].tolist()] == [
        "0x3f800001", "0xc000ffff", "0x3f000002", "0x0", "0x0"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("size", "density", "workers", "capacity"),
    [
        (1_000_000, 0.01, 2, 10_000),
        (1_000_001, 0.01, 2, 10_001),
        (1_000_000, 0.01, 199, 10_000),
        (1_000_000, 0.01, 200, 0),  # each worker would receive as much as from a ring
        (20, 1.0, 2, 0),
        (68, 0.1, 8, 0),  # as many bytes
        (69, 0.1, 8, 16),
    ],
)
def test_the_capacity_of_a_message(size: int, density: float, workers: int, capacity: int) -> None:
    assert compute_capacity(size, density, workers) == capacity


def step_in_chunks(world: World) -> tuple[Tensor, Tensor, Tensor]:
    """Take steps of random changes; return the change of the weights, the sum of this worker's, and its residual."""
    module.MAX_ELEMENTS = 1000
    network = nn.Linear(50, 50, bias=False)
    strategy = Threshold(Options(name="threshold", density=0.05), world)
    strategy.wrap_model(network, lambda *_: None)
    before, generator = network.weight.detach().clone(), torch.Generator().manual_seed(world.rank)
    own = torch.zeros(50, 50)
    for _ in range(5):
        change = torch.randn(50, 50, generator=generator)
        own += change
        with torch.no_grad():
            network.weight += change
        strategy.after_step()
    return network.weight.detach() - before, own, strategy.rank_state()["residual"].view(50, 50)


@pytest.mark.ranks
def test_every_change_is_in_the_weights_of_all_workers_or_left_to_send() -> None:
    """Also with several messages a step."""
    with Workers(2) as pair:
        (first, *of_first), (second, *of_second) = pair(step_in_chunks)
    assert torch.equal(first, second)
    changes, left = (torch.stack(values).mean(0) for values in zip(of_first, of_second, strict=True))
    assert torch.allclose(first + left, changes, atol=1e-5)
    assert 0 < int((first != 0).sum()) < 2500


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_residual_that_is_not_finite_ends_the_training(value: float) -> None:
    """Nothing of it would ever be sent."""
    strategy = restore([build_state([1.0, value], 0.1)], World())
    with pytest.raises(TrainyardError, match=r"^the training diverged: .* worker 0 .* Lower the learning rate"):
        strategy.synchronize()
    restore(STATES, World()).synchronize()
