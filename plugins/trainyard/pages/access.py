"""Access control of the pages: the DAGs that a user may read, and the connections that name their storage.

A database session ends with each query: none is held while storage is read.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import HTTPException

from trainyard.checks import connections
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.pages.airflow_api import (
    BaseUser,
    DagAccessEntity,
    DagDetails,
    GetUserDep,
    get_auth_manager,
    read_teams,
)


def get_readable_dags(user: GetUserDep) -> set[str]:
    """Return the DAGs that Airflow's own pages would list for the user."""
    return set(get_auth_manager().get_authorized_dag_ids(user=user, method="GET"))


def filter_readable_runs(user: BaseUser, dag_ids: Sequence[str]) -> list[str]:
    """Return the DAGs whose runs the user may read."""
    teams = read_teams(dag_ids)
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
        if connections.is_trainyard(conn_id) or conn_id == connections.DEFAULT:
            return TrainyardHook(conn_id).get_conn().storage
    except Exception as error:  # also of Hadoop's configuration
        raise HTTPException(404, str(error)) from None
    raise HTTPException(404, f"There is no connection {conn_id!r} of type {TrainyardHook.conn_type}.")


def list_storages() -> tuple[dict[str, str], dict[str, str]]:
    """Return connection id -> storage, and connection id -> why it cannot be used.

    Of several connections with the same storage, only the first is returned; the default connection comes first.
    """
    storages: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    for conn_id in connections.list_connections():
        try:
            storage = get_storage(conn_id)
        except HTTPException as error:
            unreadable[conn_id] = error.detail
            continue
        if storage not in storages.values():
            storages[conn_id] = storage
    return storages, unreadable
