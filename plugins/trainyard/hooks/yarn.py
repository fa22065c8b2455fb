"""The connection type `yarn`: how the ResourceManager is asked where HADOOP_CONF_DIR does not say it."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseHook

from trainyard.errors import TrainyardError
from trainyard.yarn.connection import read_connection
from trainyard.yarn.resource_manager import ResourceManager


class YarnHook(BaseHook):  # type: ignore[misc]
    """Read a connection of type `yarn`: a ResourceManager, or a gateway such as Knox in front of it.

    The connection has a host (or several, separated by commas, each with an optional port), `http` or `https` as
    schema, a login, and an extra with `auth`, `gateway` and `ca_file`. Trainyard uses the one that Airflow's setting
    `yarn_conn_id` in section `[trainyard]` names, and by default HADOOP_CONF_DIR.

    Args:
        conn_id: The connection.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "yarn_default"
    conn_type = "yarn"
    hook_name = "YARN"

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how Airflow shows the connection's form."""
        return {
            "hidden_fields": [],
            "relabeling": {"host": "ResourceManagers", "schema": "http or https"},
            "placeholders": {"host": "rm1.example.com,rm2.example.com", "port": "8088", "schema": "http"},
        }

    def get_conn(self) -> ResourceManager:
        """Return the ResourceManager.

        Raises:
            TrainyardError: There is no such connection, a setting is not valid, or there is no Kerberos ticket.
        """
        return read_connection(self.conn_id)

    def test_connection(self) -> tuple[bool, str]:
        """Ask the ResourceManager for its version, for the button `Test` of Airflow's form."""
        try:
            info = self.get_conn().get("info")["clusterInfo"]
        except (TrainyardError, KeyError) as error:
            return False, str(error)
        return True, f"YARN {info.get('hadoopVersion')} is {info.get('state')}, {info.get('haState')}."
