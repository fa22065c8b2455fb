"""Pages of runs. Pure functions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainyard.pages import runs


@given(st.lists(st.integers(), max_size=200))
def test_all_pages_together_have_every_item_once(items: list[int]) -> None:
    pages = runs.paginate(items, 1).pages
    joined = [item for number in range(1, pages + 1) for item in runs.paginate(items, number).items]
    assert joined == items


@pytest.mark.parametrize(("number", "shown"), [(-3, 1), (0, 1), (2, 2), (99, 3)])
def test_a_page_number_out_of_range_gives_the_nearest_page(number: int, shown: int) -> None:
    assert runs.paginate(list(range(60)), number).number == shown
