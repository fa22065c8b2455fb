"""What differs between the versions of Airflow: this is the only file that knows them."""

from __future__ import annotations

import os
import re
import uuid
from typing import Any
from urllib.parse import quote

from airflow import __version__ as airflow_version
from airflow.sdk import BaseHook, Connection, Variable

try:
    from airflow.sdk.configuration import conf
    from airflow.sdk.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferralError,
        TaskDeferralTimeout,
        TaskDeferred,
    )
except ImportError:  # Airflow 3.1
    from airflow.configuration import conf
    from airflow.exceptions import (
        AirflowException,
        AirflowFailException,
        AirflowNotFoundException,
        AirflowSensorTimeout,
        AirflowSkipException,
        AirflowTaskTimeout,
        TaskDeferralError,
        TaskDeferralTimeout,
        TaskDeferred,
    )

__all__ = [
    "AirflowException",
    "AirflowFailException",
    "AirflowNotFoundException",
    "AirflowSensorTimeout",
    "AirflowSkipException",
    "AirflowTaskTimeout",
    "TaskDeferralError",
    "TaskDeferralTimeout",
    "TaskDeferred",
    "add_variable",
    "conf",
    "describe_airflow",
    "get_connection",
    "import_dag_bag",
    "is_newer",
    "list_setting",
    "list_variables",
    "mask_secrets",
    "quote_login_target",
]

NEWEST = (3, 3)
"""The newest minor version of Airflow that was tried."""


def _parse_minor(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def is_newer(version: str = airflow_version) -> bool:
    """Return whether a version of Airflow is newer than those that were tried."""
    return _parse_minor(version) > NEWEST


def describe_airflow(version: str = airflow_version) -> str:
    """Return a version of Airflow, with a note where it is newer than those that were tried."""
    newest = ".".join(map(str, NEWEST))
    return f"{version}, newer than {newest}, the newest that was tried" if is_newer(version) else version


def list_setting(section: str, key: str) -> list[str]:
    """Return the values of a setting of Airflow that are separated by commas; none if it is not set.

    Airflow 3.1 splits the text of a fallback: its `conf.getlist` takes no empty list.
    """
    return [value for part in conf.get(section, key, fallback="").split(",") if (value := part.strip())]


def get_connection(conn_id: str) -> Any:
    """Return a connection of Airflow.

    Airflow 3.1 does not find a connection of the environment whose extra is not a JSON object; it is returned as others
    are.

    Raises:
        AirflowNotFoundException: There is no such connection.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        text = os.environ.get(f"AIRFLOW_CONN_{conn_id.upper()}", "")
        if not text.startswith("{"):
            raise
        return Connection.from_json(text, conn_id=conn_id)


def list_variables(prefix: str) -> frozenset[str]:
    """Return the keys of Airflow's Variables that begin with a prefix; before Airflow 3.3, the last that was added."""
    if hasattr(Variable, "keys"):
        return frozenset(Variable.keys(prefix=prefix))
    key = Variable.get(prefix.rstrip("_"), default=None)
    return frozenset([key] if key else [])


def add_variable(prefix: str, value: str) -> None:
    """Add a Variable whose key begins with a prefix; before Airflow 3.3, one named by the prefix has that key."""
    key = f"{prefix}{uuid.uuid4().hex}"
    Variable.set(key, value)
    if not hasattr(Variable, "keys"):
        Variable.set(prefix.rstrip("_"), key)


def quote_login_target(url: str, version: str = airflow_version) -> str:
    """Return the page after a login for the parameter `next`; Airflow 3.1 passes it on without quoting it."""
    return quote(url, safe="/?=") if _parse_minor(version) < (3, 2) else url


def mask_secrets(text: str) -> str:
    """Return a text with `***` in place of what Airflow masks in logs: secrets that this process has read.

    They are the passwords and extras of connections, and Variables whose names Airflow takes for those of secrets.
    Airflow 3.1, 3.2 and 3.3 have this private function at the same place.
    """
    from airflow.sdk._shared.secrets_masker import redact

    return str(redact(text))


def import_dag_bag() -> Any:
    """Return Airflow's DagBag, whose import takes seconds."""
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 3.1
        from airflow.models.dagbag import DagBag
    return DagBag
