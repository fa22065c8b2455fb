"""What differs between a laptop and a cluster lies in two Airflow connections; this reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.planning.runtime import airflow_home
from trainyard.yarn import cluster


@dataclass(frozen=True)
class Settings:
    """What a `trainyard` connection says. `storage` is the URI that relative names lie below."""

    storage: str


class TrainyardHook(BaseHook):  # type: ignore[misc]
    """The connection type `trainyard`: where batches, models and runs are stored."""

    conn_name_attr = "conn_id"
    default_conn_name = "trainyard_default"
    conn_type = "trainyard"
    hook_name = "Trainyard"

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """What the connection's form in Airflow shows."""
        return {
            "hidden_fields": ["host", "schema", "login", "password", "port"],
            "relabeling": {},
            "placeholders": {"extra": '{"storage": "file:///data/trainyard"}'},
        }

    def get_conn(self) -> Settings:
        """The settings; the default connection need not exist. With `webhdfs`, HDFS is reached by that connection.

        Raises TrainyardError when the storage asks for Kerberos, and there is no ticket.
        """
        try:
            extra = self.get_connection(self.conn_id).extra_dejson
        except AirflowNotFoundException:
            if self.conn_id != self.default_conn_name:
                raise TrainyardError(
                    f"there is no connection {self.conn_id!r}; create one of type trainyard, with "
                    'extra {"storage": "file:///..."}.'
                ) from None
            extra = {}
        root = str(extra.get("storage") or default_storage())
        if extra.get("webhdfs"):
            from trainyard.hooks import webhdfs

            storage.register_filesystem("hdfs", webhdfs.connect(extra["webhdfs"]))
        else:
            cluster.admit(root)
        return Settings(root)


def default_storage() -> str:
    """Where things lie when no connection says so: `trainyard/` in Airflow's home."""
    return (airflow_home() / "trainyard").as_uri()
