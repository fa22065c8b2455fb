"""Airflow calls `on_kill` of a trigger whose deferred task is marked as failed or cleared."""

from __future__ import annotations

from airflow import __version__
from airflow.triggers.base import BaseTrigger
from packaging.version import Version


def test_airflow_calls_on_kill_of_a_trigger() -> None:
    """Airflow before 3.3 does not, and the application of a task that is cleared runs on."""
    assert hasattr(BaseTrigger, "on_kill") is (Version(__version__) >= Version("3.3"))
