"""What a user gets to see: the DAGs that may be read, and the connections that say where their runs lie."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from airflow.models import Connection, DagModel
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.secrets.environment_variables import CONN_ENV_PREFIX
from fastapi import HTTPException
from sqlalchemy import select
from sqlalchemy.orm import Session

from trainyard.errors import TrainyardError
from trainyard.hooks.trainyard import TrainyardHook

DEFAULT = TrainyardHook.default_conn_name


def readable_dags(user: GetUserDep) -> set[str]:
    """The DAGs that Airflow's own pages would list for the user."""
    return set(get_auth_manager().get_authorized_dag_ids(user=user, method="GET"))


def with_readable_runs(session: Session, user: BaseUser, dag_ids: Sequence[str]) -> list[str]:
    """Those of the DAGs whose runs the user may read."""
    teams, manager = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids), session=session), get_auth_manager()

    def may(dag_id: str) -> bool:
        dag = DagDetails(id=dag_id, team_name=teams.get(dag_id))
        return bool(manager.is_authorized_dag(method="GET", access_entity=DagAccessEntity.RUN, details=dag, user=user))

    return [dag_id for dag_id in dag_ids if may(dag_id)]


def storage_root(conn_id: str) -> str:
    """Where the connection says that things are stored. Raises HTTP 404 for one that is none of Trainyard's."""
    try:
        if _is_ours(conn_id) or conn_id == DEFAULT:
            return TrainyardHook(conn_id).get_conn().storage
    except TrainyardError as error:
        raise HTTPException(404, str(error)) from None
    raise HTTPException(404, f"There is no connection {conn_id!r} of type {TrainyardHook.conn_type}.")


def roots(session: Session) -> dict[str, str]:
    """Connection -> where it says that things are stored; of several that say the same, the first.

    The default comes first, then those of the environment and of Airflow's database; what another backend of
    secrets holds cannot be listed, and is named by Airflow's setting `connections` of section `trainyard`.
    """
    found: dict[str, str] = {}
    for conn_id in dict.fromkeys([DEFAULT, *_in_environment(), *_in_database(session), *_in_configuration()]):
        root = storage_root(conn_id)
        if root not in found.values():
            found[conn_id] = root
    return found


def _is_ours(conn_id: str) -> bool:
    with suppress(AirflowNotFoundException):
        return bool(BaseHook.get_connection(conn_id).conn_type == TrainyardHook.conn_type)
    return False


def _in_environment() -> Iterator[str]:
    named = sorted(name.removeprefix(CONN_ENV_PREFIX) for name in os.environ if name.startswith(CONN_ENV_PREFIX))
    return filter(_is_ours, map(str.lower, named))


def _in_configuration() -> Iterator[str]:
    return filter(_is_ours, conf.getlist("trainyard", "connections", fallback=[]))


def _in_database(session: Session) -> list[str]:
    ours = Connection.conn_type == TrainyardHook.conn_type
    return list(session.scalars(select(Connection.conn_id).where(ours).order_by(Connection.conn_id)))
