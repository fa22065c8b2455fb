"""The cluster that spark-submit submits to: its ResourceManager, and how to end a task's applications."""

from __future__ import annotations

import getpass
import os

from trainyard.yarn import kerberos, site
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.snapshot import ClusterSnapshot
from trainyard.yarn.snapshot import take_snapshot as snapshot_of


def resource_manager() -> ResourceManager:
    """Return the ResourceManager of the cluster in HADOOP_CONF_DIR, for requests as the submitting user.

    Raises:
        TrainyardError: There is no configuration, or the ResourceManager requires Kerberos and there is no ticket.
    """
    urls = site.resource_managers(site.properties(site.folder() / "yarn-site.xml"))
    if site.authentication(site.core()) == "kerberos":
        return ResourceManager(urls, *kerberos.ticket())
    return ResourceManager(urls, os.environ.get("HADOOP_USER_NAME") or getpass.getuser())


def take_snapshot() -> ClusterSnapshot:
    """Return the nodes, partitions and queues of the cluster at this moment, for the submitting user."""
    manager = resource_manager()
    return snapshot_of(manager, manager.user)


def end(tag: str) -> list[str]:
    """Kill every live application with a tag, and return their ids."""
    manager = resource_manager()
    live = [application.id for application in manager.tagged(tag) if application.live]
    for id in live:
        manager.kill(id)
    return live


def require_ticket(uri: str) -> None:
    """Raise TrainyardError if `uri` is on an HDFS that requires Kerberos, and there is no ticket."""
    if uri.startswith("hdfs://") and kerberos.is_required(site.core()):
        kerberos.ticket()


def unusable_token(uri: str) -> str:
    """Return why containers of this cluster could not access `uri` with their token, "" if they can."""
    return kerberos.unusable_token(site.core(), uri)
