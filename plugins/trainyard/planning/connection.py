"""Where applications are submitted, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SparkConnection:
    """The content of an Airflow connection of type `spark`: master, and on YARN queue and deploy mode."""

    conn_id: str
    master: str
    queue: str | None = None
    deploy_mode: str | None = None
