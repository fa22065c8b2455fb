"""The page about security: each line of its table has a test, and each place in its lists exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/explanation/security.md").read_text()
TESTS = re.findall(r"`([\w/]+\.py)::(\w+)`", PAGE)
CHECKED = PAGE.split("## What is checked")[1].split("\n## ")[0]
PLACES = re.findall(r"`([\w/]+\.py|trainer/\w+)`", PAGE.split("## Bytes from elsewhere")[1].split("\n## ")[0])


@pytest.mark.parametrize(("file", "name"), TESTS, ids=[name for _, name in TESTS])
def test_a_test_that_the_page_names_exists(file: str, name: str) -> None:
    assert f"\ndef {name}(" in (ROOT / "tests" / file).read_text()


def test_each_line_of_the_table_has_a_test() -> None:
    lines = [line for line in CHECKED.splitlines() if line.startswith("| ")][2:]
    assert len(lines) > 20
    assert [line for line in lines if not re.search(r"`[\w/]+\.py::\w+` \|$", line)] == []


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_interprets_bytes_exists(place: str) -> None:
    assert (ROOT / place).exists() or (ROOT / "plugins/trainyard" / place).exists()
