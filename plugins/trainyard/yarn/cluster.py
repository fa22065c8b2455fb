"""The cluster that spark-submit submits to: its ResourceManager, and how to end applications."""

from __future__ import annotations

from collections.abc import Iterable

from trainyard.compat import conf
from trainyard.files import hadoop_conf, kerberos
from trainyard.planning.runtime import submitting_user
from trainyard.yarn import site
from trainyard.yarn.connection import read_connection
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.snapshot import ClusterSnapshot
from trainyard.yarn.snapshot import take_snapshot as snapshot_of


def resource_manager() -> ResourceManager:
    """Return the ResourceManager, for requests as the submitting user.

    It is that of the connection in Airflow's setting `yarn_conn_id` in section `[trainyard]`, by default that of the
    cluster in HADOOP_CONF_DIR.

    Raises:
        TrainyardError: There is no configuration, or the ResourceManager requires Kerberos and there is no ticket.
    """
    if conn_id := conf.get("trainyard", "yarn_conn_id", fallback=""):
        return read_connection(conn_id)
    urls = site.resource_managers(_yarn_site())
    if site.authentication(site.core()) == "kerberos":
        return ResourceManager(urls, *kerberos.ticket())
    return ResourceManager(urls, submitting_user())


def take_snapshot() -> ClusterSnapshot:
    """Return the nodes, partitions and queues of the cluster at this moment, for the submitting user."""
    manager = resource_manager()
    return snapshot_of(manager, manager.user, _yarn_site())


def _yarn_site() -> dict[str, str]:
    return hadoop_conf.read_properties(site.folder() / "yarn-site.xml")


def kill(application: str) -> None:
    """Kill an application; does nothing for one that has ended."""
    resource_manager().kill(application)


def kill_named(application: str, name: str) -> None:
    """Kill an application if it has a name; see `ResourceManager.kill_named`."""
    resource_manager().kill_named(application, name)


def kill_tagged(tag: str) -> None:
    """Kill every live application with a tag."""
    resource_manager().kill_tagged(tag)


def container_user() -> str | None:
    """Return the user that containers access HDFS as; None with Kerberos, where their token decides."""
    return None if kerberos.is_required(site.core()) else submitting_user()


def list_accessible(uris: Iterable[str]) -> list[str]:
    """Return the URIs that a container without a delegation token can access: with Kerberos none of HDFS."""
    needs_token = kerberos.is_required(site.core())
    return [uri for uri in uris if not (needs_token and uri.startswith(("hdfs://", "viewfs://")))]


def unusable_token(uri: str) -> str:
    """Return why containers of this cluster could not access `uri` with their token, "" if they can."""
    return kerberos.unusable_token(site.core(), uri)
