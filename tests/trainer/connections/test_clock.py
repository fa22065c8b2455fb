"""The offset between two clocks."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from trainyard.trainer.connections.clock import REQUESTS, measure_offset

DELAYS = st.lists(
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)), min_size=REQUESTS, max_size=REQUESTS
)  # fmt: skip


@given(st.integers(-(10**15), 10**15), DELAYS)
def test_the_offset_is_measured_to_within_its_error(behind: int, delays: list[tuple[int, int]]) -> None:
    now, ways = 10**18, iter(delays)
    way: Iterator[int] = iter(())

    def local_time() -> int:
        return now

    def request_time() -> int:
        nonlocal now, way
        there, back = next(ways)
        now += there
        answer = now + behind
        now += back
        return answer

    offset = measure_offset(request_time, local_time)
    assert abs(offset.behind_ns - behind) <= offset.error_ns + 1
    assert offset.error_ns == min(there + back for there, back in delays) // 2
