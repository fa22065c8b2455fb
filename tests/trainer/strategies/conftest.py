"""Two connected workers, which the tests of all strategies share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainer.workers import Workers


@pytest.fixture(scope="package")
def pair() -> Iterator[Workers]:
    with Workers(2) as workers:
        yield workers
