"""Airflow calls `on_kill` of a trigger whose deferred task is marked as failed or cleared."""

from __future__ import annotations

from airflow.triggers.base import BaseTrigger


def test_airflow_calls_on_kill_of_a_trigger() -> None:
    """Airflow before 3.3 does not, and the application of such a task runs on."""
    assert hasattr(BaseTrigger, "on_kill"), "Airflow has no BaseTrigger.on_kill: killed tasks leave applications"
