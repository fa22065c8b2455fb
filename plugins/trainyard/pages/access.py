"""Access control of the pages: the DAGs that a user may read, and the connections that name their storage.

A database session ends with each query: none is held while storage is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from fastapi import HTTPException
from sqlalchemy import select

from trainyard.hooks.trainyard import TrainyardHook
from trainyard.pages.airflow_api import (
    CONN_ENV_PREFIX,
    BaseUser,
    Connection,
    DagAccessEntity,
    DagDetails,
    DagModel,
    GetUserDep,
    conf,
    create_session,
    get_auth_manager,
)

DEFAULT = TrainyardHook.default_conn_name


def get_readable_dags(user: GetUserDep) -> set[str]:
    """Return the DAGs that Airflow's own pages would list for the user."""
    return set(get_auth_manager().get_authorized_dag_ids(user=user, method="GET"))


def filter_readable_runs(user: BaseUser, dag_ids: Sequence[str]) -> list[str]:
    """Return the DAGs whose runs the user may read."""
    with create_session(scoped=False) as session:
        teams = DagModel.get_dag_id_to_team_name_mapping(list(dag_ids), session=session)
    manager = get_auth_manager()

    def may_read(dag_id: str) -> bool:
        dag = DagDetails(id=dag_id, team_name=teams.get(dag_id))
        return bool(manager.is_authorized_dag(method="GET", access_entity=DagAccessEntity.RUN, details=dag, user=user))

    return [dag_id for dag_id in dag_ids if may_read(dag_id)]


def get_storage(conn_id: str) -> str:
    """Return the storage of a Trainyard connection.

    Raises:
        HTTPException: 404, the connection cannot be used, does not exist, or is of another type.
    """
    try:
        if _is_ours(conn_id) or conn_id == DEFAULT:
            return TrainyardHook(conn_id).get_conn().storage
    except Exception as error:  # also of Hadoop's configuration
        raise HTTPException(404, str(error)) from None
    raise HTTPException(404, f"There is no connection {conn_id!r} of type {TrainyardHook.conn_type}.")


def list_storages() -> tuple[dict[str, str], dict[str, str]]:
    """Return connection id -> storage, and connection id -> why it cannot be used.

    Of several connections with the same storage, only the first is returned.

    The default connection comes first, then those of the environment and of Airflow's database. Connections of another
    secrets backend cannot be listed; Airflow's setting `connections` of section `trainyard` names them.
    """
    storages: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for conn_id in dict.fromkeys([DEFAULT, *_in_environment(), *_in_database(), *_in_configuration()]):
        try:
            storage = get_storage(conn_id)
        except HTTPException as error:
            unreadable[conn_id] = error.detail
            continue
        if storage not in storages.values():
            storages[conn_id] = storage
    return storages, unreadable


def _is_ours(conn_id: str) -> bool:
    with suppress(AirflowNotFoundException):
        return bool(BaseHook.get_connection(conn_id).conn_type == TrainyardHook.conn_type)
    return False


def _in_environment() -> Iterator[str]:
    conn_ids = sorted(name.removeprefix(CONN_ENV_PREFIX) for name in os.environ if name.startswith(CONN_ENV_PREFIX))
    return filter(_is_ours, map(str.lower, conn_ids))


def _in_configuration() -> Iterator[str]:
    return filter(_is_ours, conf.getlist("trainyard", "connections", fallback=[]))


def _in_database() -> list[str]:
    ours = Connection.conn_type == TrainyardHook.conn_type
    with create_session(scoped=False) as session:
        return list(session.scalars(select(Connection.conn_id).where(ours).order_by(Connection.conn_id)))
