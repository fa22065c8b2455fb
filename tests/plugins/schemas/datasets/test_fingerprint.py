"""A fingerprint is complete when the versions of all tables are known."""

from __future__ import annotations

import pytest

from trainyard.schemas.datasets import fingerprint

OPEN = "source=1 tables=? code=2 options=3"


def test_a_fingerprint_without_tables_is_complete() -> None:
    text = "source=1 code=2 options=3"
    assert fingerprint.is_complete(text) and fingerprint.complete(text, {"source": None}) == text
    assert fingerprint.is_complete("") and fingerprint.complete("", {"source": "1"}) == ""


def test_versions_complete_a_fingerprint() -> None:
    first = fingerprint.complete(OPEN, {"orders": ("1", "8"), "people": ("2", "9")})
    assert fingerprint.is_complete(first)
    assert first == fingerprint.complete(OPEN, {"people": ("2", "9"), "orders": ("1", "8")})
    assert first != fingerprint.complete(OPEN, {"orders": ("1", "9"), "people": ("2", "9")})
    assert fingerprint.split(first) | {"tables": "?"} == fingerprint.split(OPEN)


def test_a_table_without_versions_has_no_fingerprint() -> None:
    assert fingerprint.complete(OPEN, {"orders": ("1", "8"), "people": None}) == ""


@pytest.mark.parametrize("parts", [{}, {"source": "1"}, {"source": "1", "tables": "?"}])
def test_a_text_has_its_parts(parts: dict[str, str]) -> None:
    assert fingerprint.split(fingerprint.join(parts)) == parts
