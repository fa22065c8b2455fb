"""Users of an Airflow in which not everyone may read everything."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class OwnDags(SimpleAuthManager):
    """A user may read the DAGs whose ids begin with the user's name."""

    def is_authorized_dag(self, *, user: Any, details: Any = None, **_: Any) -> bool:
        return bool(details and details.id and details.id.startswith(user.username))
