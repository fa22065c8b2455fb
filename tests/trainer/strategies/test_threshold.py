"""Encoding by sign and threshold: nothing of a gradient is lost, it is sent now or later."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.strategies.threshold import Encoding, decode, encode


@given(
    values=st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=200),
    threshold=st.floats(1e-3, 5),
    capacity=st.integers(1, 50),
)
def test_what_is_not_sent_stays(values: list[float], threshold: float, capacity: int) -> None:
    before = torch.tensor(values)
    rest = before.clone()
    found = (rest.abs() > threshold).nonzero().squeeze(1)
    message = encode(rest, found, threshold, min(capacity, len(values)))
    told = decode(message.view(1, -1), torch.empty(len(values)))
    assert (told + rest).numpy() == pytest.approx(before.numpy(), rel=1e-5, abs=1e-5)
    assert int(message[0]) == min(len(found), capacity)
    kept = before[told == 0].abs()
    if len(found) > capacity and len(kept):
        assert before[told != 0].abs().min() >= kept.max(), "the largest go first"


def test_messages_of_several_ranks_become_their_mean() -> None:
    messages = []
    for sign in (1, -1, 1):
        rest = torch.tensor([0.0, sign * 3.0, 0.0, 2.0])
        messages.append(encode(rest, (rest.abs() > 1).nonzero().squeeze(1), 1.5, 4))
    assert decode(torch.stack(messages), torch.empty(4)).tolist() == pytest.approx([0, 0.5, 0, 1.5])


@given(size=st.integers(1000, 10**7), density=st.floats(1e-4, 0.2), share=st.floats(0, 1), steps=st.integers(1, 30))
def test_a_threshold_follows_the_share_of_elements_that_exceed_it(
    size: int, density: float, share: float, steps: int
) -> None:
    encoding = Encoding(size, 1.0, size)
    for _ in range(steps):
        before = encoding.threshold
        encoding.adapt(round(share * size), density)
        assert before / 2 <= encoding.threshold <= before * 2
        if share > density * 1.01:
            assert encoding.threshold > before
        if share < density * 0.99:
            assert encoding.threshold < before


def test_room_follows_the_rank_that_sent_most_and_all_ranks_have_the_same() -> None:
    encoding = Encoding(100_000, 1e-3, 200)
    encoding.most = 5000
    encoding.agree(2, 0.001)
    assert (encoding.capacity, encoding.dense) == (7500, 0)
    encoding.most = 0
    encoding.agree(2, 0.001)
    assert encoding.capacity == 100, "there is room for as many as are wanted"


@pytest.mark.parametrize(("ranks", "dense"), [(2, False), (8, True)])
def test_all_elements_are_sent_for_some_steps_where_that_is_less(ranks: int, dense: bool) -> None:
    """A ring sends 2/n of the gradient for each rank, gathering sends what each has to all others."""
    encoding = Encoding(100_000, 1e-3, 200, most=20_000)
    encoding.agree(ranks, 0.001)
    assert bool(encoding.dense) is dense
