"""The cluster that spark-submit would submit to: its ResourceManager, and the end of a task's applications."""

from __future__ import annotations

import getpass
import os

from requests.auth import AuthBase

from trainyard.contract.errors import TrainyardError
from trainyard.yarn import site
from trainyard.yarn.resource_manager import ResourceManager
from trainyard.yarn.survey import Survey
from trainyard.yarn.survey import survey as survey_of


def resource_manager() -> ResourceManager:
    """The ResourceManager of the cluster that HADOOP_CONF_DIR describes, asked as the user who submits."""
    folder = site.folder()
    properties = site.properties(folder / "yarn-site.xml")
    core = folder / "core-site.xml"
    secure = site.authentication(site.properties(core) if core.exists() else {}) == "kerberos"
    return ResourceManager(site.resource_managers(properties), _user(), _spnego() if secure else None)


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


def _spnego() -> AuthBase:
    """Kerberos for HTTP, with the ticket that `kinit` or `airflow kerberos` got."""
    try:
        from requests_gssapi import HTTPSPNEGOAuth
    except ImportError:
        raise TrainyardError(
            "the cluster's pages ask for Kerberos (hadoop.http.authentication.type in core-site.xml); install "
            "airflow-trainyard[kerberos] where Airflow runs."
        ) from None
    return HTTPSPNEGOAuth()  # type: ignore[no-any-return]


def _user() -> str:
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
