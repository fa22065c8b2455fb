"""The cluster that spark-submit would submit to: its ResourceManager, and the end of a task's applications."""

from __future__ import annotations

import getpass
import os

from trainyard.yarn import site
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.survey import Survey
from trainyard.yarn.survey import survey as survey_of


def resource_manager() -> ResourceManager:
    """The ResourceManager of the cluster that HADOOP_CONF_DIR describes, asked as the user who submits."""
    properties = site.properties(site.folder() / "yarn-site.xml")
    return ResourceManager(site.resource_managers(properties), _user())


def survey() -> Survey:
    """What the cluster has at this moment, for the user who submits."""
    return survey_of(resource_manager(), _user())


def end(tag: str) -> list[str]:
    """Kill every live application that carries `tag`; their ids."""
    manager = resource_manager()
    live = [application.id for application in manager.tagged(tag) if application.live]
    for id in live:
        manager.kill(id)
    return live


def _user() -> str:
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
