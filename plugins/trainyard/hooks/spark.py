"""Read Airflow connections of type `spark`."""

from __future__ import annotations

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from trainyard.errors import TrainyardError
from trainyard.planning.job import SparkConnection
from trainyard.planning.runtime import spark_defaults


def spark_connection(conn_id: str) -> SparkConnection:
    """Read where a Spark connection submits. Raises TrainyardError if there is no such connection."""
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
