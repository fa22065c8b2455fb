"""The cluster that spark-submit would submit to: its ResourceManager, and the end of a task's applications."""

from __future__ import annotations

import getpass
import os

from trainyard.yarn import site
from trainyard.yarn.resource_manager import ResourceManager


def resource_manager() -> ResourceManager:
    """The ResourceManager of the cluster that HADOOP_CONF_DIR describes, asked as the user who submits."""
    properties = site.properties(site.folder() / "yarn-site.xml")
    user = os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    return ResourceManager(site.resource_managers(properties), user)


def end(tag: str) -> list[str]:
    """Kill every live application that carries `tag`; their ids."""
    manager = resource_manager()
    live = [application.id for application in manager.tagged(tag) if application.live]
    for id in live:
        manager.kill(id)
    return live
