"""Encoding by sign and threshold: nothing of a gradient is lost, it is sent now or later."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainyard.trainer.strategies.threshold import Encoding, capacity, decode, encode


@given(
    values=st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=200),
    threshold=st.floats(1e-3, 5),
    room=st.integers(1, 50),
)
def test_what_is_not_sent_stays(values: list[float], threshold: float, room: int) -> None:
    before = torch.tensor(values)
    rest = before.clone()
    found = (rest.abs() > threshold).nonzero().squeeze(1)
    message = encode(rest, found, min(room, len(values)))
    told = decode(message.view(1, -1), torch.empty(len(values)))
    assert (told + rest).numpy() == pytest.approx(before.numpy(), rel=1e-5, abs=1e-5)
    assert int(message[0]) == min(len(found), room)
    kept = before[told == 0].abs()
    if len(found) > room and len(kept):
        assert before[told != 0].abs().min() >= kept.max(), "the largest go first"


def test_messages_of_several_ranks_become_their_mean() -> None:
    messages = []
    for sign in (1, -1, 1):
        rest = torch.tensor([0.0, sign * 3.0, 0.0, 2.0])
        messages.append(encode(rest, (rest.abs() > 1).nonzero().squeeze(1), 4))
        assert rest.tolist() == [0, sign * 0.5, 0, -0.5], "all that is sent stands for 2.5"
    assert decode(torch.stack(messages), torch.empty(4)).tolist() == pytest.approx([0, 2.5 / 3, 0, 2.5])


def test_a_message_without_elements_says_nothing() -> None:
    rest = torch.tensor([0.5, -0.5])
    message = encode(rest, torch.empty(0, dtype=torch.int64), 1)
    assert decode(message.view(1, -1), torch.empty(2)).tolist() == [0, 0]
    assert rest.tolist() == [0.5, -0.5]


@given(size=st.integers(1000, 10**7), wanted=st.integers(1, 1000), share=st.floats(0, 1), steps=st.integers(1, 30))
def test_a_threshold_follows_the_number_of_elements_that_exceed_it(
    size: int, wanted: int, share: float, steps: int
) -> None:
    encoding, found = Encoding(size, 1.0), round(share * size)
    for _ in range(steps):
        before = encoding.threshold
        encoding.adapt(found, wanted)
        assert before / 2 <= encoding.threshold <= before * 2
        assert (encoding.threshold > before) == (found > wanted)
        assert (encoding.threshold < before) == (found < wanted)


def test_a_threshold_does_not_swing() -> None:
    """Residuals that grow by random gradients: after some steps about as many elements exceed it as are wanted."""
    generator = torch.Generator().manual_seed(0)
    rest, encoding, wanted = torch.zeros(20_000), Encoding(20_000, 1e-3), 200
    counts = []
    for _ in range(150):
        rest += torch.randn(len(rest), generator=generator)
        found = (rest.abs() > encoding.threshold).nonzero().squeeze(1)
        encoding.adapt(len(found), wanted)
        encode(rest, found, wanted)
        counts.append(len(found))
    assert all(wanted / 2 < count < wanted * 2 for count in counts[100:]), counts


@pytest.mark.parametrize(
    ("size", "density", "ranks", "room"),
    [
        (100_000, 0.001, 2, 100),
        (100_000, 0.25, 2, 25_000),
        (100_000, 0.25, 8, 0),
        (1000, 0.001, 2, 16),
        (17, 0.1, 2, 0),
    ],
)
def test_there_is_room_for_a_share_of_the_elements_unless_all_of_them_take_less(
    size: int, density: float, ranks: int, room: int
) -> None:
    """A ring sends 2/n of the gradient for each rank, gathering sends what each has to all others."""
    assert capacity(size, density, ranks) == room
