"""How far one clock is behind another."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from trainyard.trainer.group.clock import QUESTIONS, offset

DELAYS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=QUESTIONS, max_size=QUESTIONS
)  # fmt: skip


@given(st.integers(-(10**15), 10**15), DELAYS)
def test_the_offset_is_found_to_within_the_error_that_is_told(behind: int, delays: list[tuple[int, int]]) -> None:
    now, ways = 10**18, iter(delays)
    way: Iterator[int] = iter(())

    def here() -> int:
        return now

    def ask() -> int:
        nonlocal now, way
        there, back = next(ways)
        now += there
        answer = now + behind
        now += back
        return answer

    found = offset(ask, here)
    assert abs(found.behind_ns - behind) <= found.error_ns + 1
    assert found.error_ns == min(there + back for there, back in delays) // 2
