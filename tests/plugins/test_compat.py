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


@pytest.mark.parametrize(
    ("text", "values"),
    [(None, []), ("", []), ("a", ["a"]), ("a, b,", ["a", "b"])],
    ids=["unset", "empty", "one", "two"],
)
def test_a_setting_of_several_values_is_a_list(
    text: str | None, values: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if text is not None:
        monkeypatch.setenv("AIRFLOW__TRAINYARD__ARCHIVE_OWNERS", text)
    assert compat.list_setting("trainyard", "archive_owners") == values


@pytest.mark.parametrize(
    ("version", "target"),
    [("3.1.8", "/trainyard/run?dag_id=a%2526b%26run_id=r"), ("3.2.2", "/trainyard/run?dag_id=a%26b&run_id=r")],
)
def test_the_page_after_a_login_is_quoted_for_an_airflow_that_does_not(version: str, target: str) -> None:
    assert compat.quote_login_target("/trainyard/run?dag_id=a%26b&run_id=r", version) == target


@pytest.mark.parametrize("newest", [(1, 0), (99, 0)])
def test_the_plugin_warns_of_a_newer_airflow(
    newest: tuple[int, int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compat, "NEWEST", newest)
    with caplog.at_level(logging.WARNING, "trainyard"):
        TrainyardPlugin.on_load()
    assert ("newer than 1.0" in caplog.text) is (newest == (1, 0))
