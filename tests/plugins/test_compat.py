"""Airflow versions: newer ones than were tried are allowed, with a warning."""

from __future__ import annotations

import logging

import pytest

from trainyard import compat
from trainyard.plugin import TrainyardPlugin

NEWER = "4.0.0, newer than 3.3, the newest that was tried"


@pytest.mark.parametrize(
    ("version", "described"),
    [("3.1.8", "3.1.8"), ("3.3.2", "3.3.2"), ("3.3.0rc1", "3.3.0rc1"), ("4.0.0", NEWER)],
)
def test_a_version_is_described_with_a_note_if_it_is_newer_than_those_tried(version: str, described: str) -> None:
    assert compat.describe_airflow(version) == described


@pytest.mark.parametrize("newest", [(1, 0), (99, 0)])
def test_the_plugin_warns_of_a_newer_airflow(
    newest: tuple[int, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compat, "NEWEST", newest)
    with caplog.at_level(logging.WARNING, "trainyard"):
        TrainyardPlugin.on_load()
    assert ("newer than 1.0" in caplog.text) is (newest == (1, 0))
