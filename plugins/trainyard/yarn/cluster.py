"""The cluster that spark-submit submits to: its ResourceManager, and how to end applications."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable

from trainyard.errors import TrainyardError
from trainyard.yarn import kerberos, site
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.snapshot import ClusterSnapshot
from trainyard.yarn.snapshot import take_snapshot as snapshot_of

_connection: tuple[str, Callable[[], ResourceManager]] | None = None
"""The Airflow connection of type `yarn` that this process uses, and what makes requests with it."""


def connect_by(conn_id: str, connect: Callable[[], ResourceManager]) -> None:
    """Ask the ResourceManager by an Airflow connection, in this process from now on.

    Args:
        conn_id: The connection of type `yarn`.
        connect: Returns the ResourceManager of the connection.

    Raises:
        TrainyardError: This process uses another connection already: spark-submit knows one cluster alone.
    """
    global _connection
    if _connection and _connection[0] != conn_id:
        raise TrainyardError(
            f"yarn={conn_id!r}: this process asks the ResourceManager by connection {_connection[0]!r}; write the same "
            "yarn into the extra of each trainyard connection, because HADOOP_CONF_DIR is of one cluster."
        )
    _connection = conn_id, connect


def connection_id() -> str:
    """Return the connection of type `yarn` that this process uses, "" for HADOOP_CONF_DIR alone."""
    return _connection[0] if _connection else ""


def resource_manager() -> ResourceManager:
    """Return the ResourceManager, for requests as the submitting user.

    It is that of the connection given to `connect_by`, by default that of the cluster in HADOOP_CONF_DIR.

    Raises:
        TrainyardError: There is no configuration, or the ResourceManager requires Kerberos and there is no ticket.
    """
    if _connection:
        return _connection[1]()
    urls = site.resource_managers(_yarn_site())
    if site.authentication(site.core()) == "kerberos":
        return ResourceManager(urls, *kerberos.ticket())
    return ResourceManager(urls, os.environ.get("HADOOP_USER_NAME") or getpass.getuser())


def take_snapshot() -> ClusterSnapshot:
    """Return the nodes, partitions and queues of the cluster at this moment, for the submitting user."""
    manager = resource_manager()
    return snapshot_of(manager, manager.user, _yarn_site())


def _yarn_site() -> dict[str, str]:
    return site.properties(site.folder() / "yarn-site.xml")


def kill(application: str) -> None:
    """Kill an application; does nothing for one that has ended."""
    resource_manager().kill(application)


def kill_tagged(tag: str) -> None:
    """Kill every live application with a tag."""
    resource_manager().kill_tagged(tag)


def require_ticket(uri: str) -> None:
    """Raise TrainyardError if `uri` is on an HDFS that requires Kerberos, and there is no ticket."""
    if uri.startswith("hdfs://") and kerberos.is_required(site.core()):
        kerberos.ticket()


def unusable_token(uri: str) -> str:
    """Return why containers of this cluster could not access `uri` with their token, "" if they can."""
    return kerberos.unusable_token(site.core(), uri)
