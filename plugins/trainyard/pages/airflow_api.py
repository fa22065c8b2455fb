"""The parts of Airflow's API server that the pages use.

Airflow does not document all of them as public. This is the only file that imports them, so a new release of Airflow
needs a check only here.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.dagrun import DagRun
from airflow.models.team import Team
from airflow.utils.session import create_session
from sqlalchemy import select

__all__ = [
    "BaseUser",
    "DagAccessEntity",
    "DagDetails",
    "DagRun",
    "GetUserDep",
    "create_session",
    "get_auth_manager",
    "read_teams",
    "requires_access_dag",
]


def read_teams(dag_ids: Sequence[str]) -> dict[str, str]:
    """Return the team of each DAG that has one; Airflow 3.1 has no function for several DAGs."""
    query = (
        select(DagModel.dag_id, Team.name)
        .join(DagBundleModel, DagModel.bundle_name == DagBundleModel.name)
        .join(DagBundleModel.teams)
        .where(DagModel.dag_id.in_(dag_ids))
    )
    with create_session(scoped=False) as session:
        return dict(session.execute(query).all())
