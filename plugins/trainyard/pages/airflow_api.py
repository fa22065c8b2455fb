"""The parts of Airflow's API server that the pages use.

Airflow does not document all of them as public. This is the only file that imports them, so a new release of Airflow
needs a check only here.
"""

from __future__ import annotations

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session

__all__ = [
    "BaseUser",
    "DagAccessEntity",
    "DagDetails",
    "DagModel",
    "DagRun",
    "GetUserDep",
    "create_session",
    "get_auth_manager",
    "requires_access_dag",
]
