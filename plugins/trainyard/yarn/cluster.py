"""The cluster that spark-submit would submit to: its ResourceManager, and the end of a task's applications."""

from __future__ import annotations

import getpass
import os

from trainyard.yarn import kerberos, site
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.snapshot import ClusterSnapshot
from trainyard.yarn.snapshot import take_snapshot as snapshot_of


def resource_manager() -> ResourceManager:
    """The ResourceManager of the cluster that HADOOP_CONF_DIR describes, asked as the user who submits.

    Raises TrainyardError when it asks for Kerberos and there is no ticket.
    """
    urls = site.resource_managers(site.properties(site.folder() / "yarn-site.xml"))
    if site.authentication(site.core()) == "kerberos":
        return ResourceManager(urls, *kerberos.ticket())
    return ResourceManager(urls, os.environ.get("HADOOP_USER_NAME") or getpass.getuser())


def take_snapshot() -> ClusterSnapshot:
    """What the cluster has at this moment, for the user who submits."""
    manager = resource_manager()
    return snapshot_of(manager, manager.user)


def end(tag: str) -> list[str]:
    """Kill every live application that carries `tag`; their ids."""
    manager = resource_manager()
    live = [application.id for application in manager.tagged(tag) if application.live]
    for id in live:
        manager.kill(id)
    return live


def admit(uri: str) -> None:
    """Raises TrainyardError when `uri` lies on an HDFS that asks for Kerberos, and there is no ticket."""
    if uri.startswith("hdfs://") and kerberos.asked_for(site.core()):
        kerberos.ticket()


def unusable_token(uri: str) -> str:
    """Why containers of this cluster could not read or write `uri`, empty when they can."""
    return kerberos.unusable_token(site.core(), uri)
