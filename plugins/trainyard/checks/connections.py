"""List the connections of type `trainyard`: those of the environment, of Airflow's database and of its settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress

from airflow.models import Connection
from airflow.secrets.environment_variables import CONN_ENV_PREFIX
from airflow.utils.session import create_session
from sqlalchemy import select

from trainyard.compat import AirflowNotFoundException, get_connection, list_setting
from trainyard.hooks.trainyard import TrainyardHook

DEFAULT = TrainyardHook.default_conn_name


def list_connections() -> list[str]:
    """Return the ids of the Trainyard connections, the default one first, whether it exists or not.

    Connections of another secrets backend cannot be listed; Airflow's setting `connections` of section `trainyard`
    names them.
    """
    return list(dict.fromkeys([DEFAULT, *_in_environment(), *_in_database(), *_in_configuration()]))


def is_trainyard(conn_id: str) -> bool:
    """Return whether there is a connection of this id and of type `trainyard`."""
    with suppress(AirflowNotFoundException):
        return bool(get_connection(conn_id).conn_type == TrainyardHook.conn_type)
    return False


def list_environments() -> list[str]:
    """Return the packed environments that Trainyard connections name.

    Raises:
        TrainyardError: A connection is not valid.
    """
    settings = [TrainyardHook(conn_id).get_conn() for conn_id in list_connections() if is_trainyard(conn_id)]
    return [uri for each in settings for uri in each.environments]


def _in_environment() -> Iterator[str]:
    conn_ids = sorted(name.removeprefix(CONN_ENV_PREFIX) for name in os.environ if name.startswith(CONN_ENV_PREFIX))
    return filter(is_trainyard, map(str.lower, conn_ids))


def _in_configuration() -> Iterator[str]:
    return filter(is_trainyard, list_setting("trainyard", "connections"))


def _in_database() -> list[str]:
    ours = Connection.conn_type == TrainyardHook.conn_type
    with create_session(scoped=False) as session:
        return list(session.scalars(select(Connection.conn_id).where(ours).order_by(Connection.conn_id)))
