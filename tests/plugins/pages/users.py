"""Users of an Airflow in which not everyone may read everything."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager


class OwnDags(SimpleAuthManager):
    """A user may read the DAGs whose ids begin with the user's name, and runs but of those that end in `secret`."""

    def is_authorized_dag(self, *, user: Any, details: Any = None, access_entity: Any = None, **_: Any) -> bool:
        if not details or not details.id or not details.id.startswith(user.username):
            return False
        return access_entity is None or not details.id.endswith("secret")
