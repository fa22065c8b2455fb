"""Where applications are submitted, as a value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SparkConnection:
    """What a `spark` connection says about where applications run."""

    conn_id: str
    master: str
    queue: str | None = None
    deploy_mode: str | None = None
