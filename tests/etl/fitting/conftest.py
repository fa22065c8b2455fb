"""Fixtures of tests of what is fitted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="package", autouse=True)
def prepares() -> Iterator[Any]:
    """Make the module of prepare functions importable by its own name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1]))
        yield
        sys.modules.pop("prepares", None)
