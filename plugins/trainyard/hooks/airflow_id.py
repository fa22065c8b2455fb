"""The identity of this Airflow: of the applications that run with one storage, it recognizes those of its own tasks.

Airflow's database keeps it as the key of a Variable, because all processes of an Airflow share that without any
configuration: tasks use Airflow's API, and commands the database (`checks.airflow_database`). A backup of the database
has it too.
"""

from __future__ import annotations

import logging

from airflow.sdk.exceptions import AirflowRuntimeError

from trainyard.compat import add_variable, list_variables

PREFIX = "trainyard_airflow_"
_VALUE = "Trainyard recognizes the applications of this Airflow by the key of this Variable. Keep it."

_logger = logging.getLogger(__name__)


def list_ids() -> frozenset[str]:
    """Return the identities of this Airflow. It has one, or two if two tasks were the first at the same moment."""
    return list_variables(PREFIX)


def get_id() -> str:
    """Return the identity of the Airflow that runs this task, which its first task creates.

    It is "" where there is none: outside of a task, or while Airflow's API does not answer.
    """
    try:
        if not list_ids():
            add_variable(PREFIX, _VALUE)
        return min(list_ids())
    except (ImportError, AirflowRuntimeError) as error:
        _logger.warning(
            "This Airflow cannot be identified, so `trainyard app reap` does not end its application: %s", error
        )
        return ""
