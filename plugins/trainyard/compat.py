"""What differs between the versions of Airflow: this is the only file that knows them."""

from __future__ import annotations

import re
from typing import Any

from airflow import __version__ as airflow_version

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
    "conf",
    "describe_airflow",
    "import_dag_bag",
    "is_newer",
    "mask_secrets",
]

NEWEST = (3, 3)
"""The newest minor version of Airflow that was tried."""


def is_newer(version: str = airflow_version) -> bool:
    """Return whether a version of Airflow is newer than those that were tried."""
    return tuple(map(int, re.findall(r"\d+", version)[:2])) > NEWEST


def describe_airflow(version: str = airflow_version) -> str:
    """Return a version of Airflow, with a note where it is newer than those that were tried."""
    newest = ".".join(map(str, NEWEST))
    return f"{version}, newer than {newest}, the newest that was tried" if is_newer(version) else version


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
