"""What differs between a laptop and a cluster lies in two Airflow connections; this reads them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from trainyard.contract import storage
from trainyard.contract.errors import TrainyardError
from trainyard.runtime import spark_defaults
from trainyard.yarn import cluster


@dataclass(frozen=True)
class Settings:
    """What a `trainyard` connection says. `storage` is the URI that relative names lie below."""

    storage: str


@dataclass(frozen=True)
class SparkConnection:
    """What a `spark` connection says about where applications run."""

    conn_id: str
    master: str
    queue: str | None = None
    deploy_mode: str | None = None


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
            from trainyard import webhdfs

            storage.route("hdfs", webhdfs.connect(extra["webhdfs"]))
        else:
            cluster.admit(root)
        return Settings(root)


def airflow_home() -> Path:
    """The folder that Airflow keeps its own files in."""
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser().resolve()


def default_storage() -> str:
    """Where things lie when no connection says so: `trainyard/` in Airflow's home."""
    return (airflow_home() / "trainyard").as_uri()


def spark_connection(conn_id: str) -> SparkConnection:
    """Where the Spark connection `conn_id` submits to."""
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise TrainyardError(
            f"there is no Spark connection {conn_id!r}; create it, for example: airflow connections add "
            f"{conn_id} --conn-type spark --conn-host 'local[2]'."
        ) from None
    extra = connection.extra_dejson
    host = f"{connection.host or ''}:{connection.port}" if connection.port else connection.host or ""
    scheme = connection.conn_type
    master = host if scheme == "spark" and (not connection.port or "://" in host) else f"{scheme}://{host}"
    queue = extra.get("queue") or spark_defaults().get("spark.yarn.queue")
    return SparkConnection(conn_id, master, queue, extra.get("deploy-mode"))
