"""Read Airflow connections of type `spark`."""

from __future__ import annotations

from trainyard.compat import AirflowNotFoundException, get_connection
from trainyard.connection_fields import read_extra
from trainyard.errors import TrainyardError
from trainyard.planning.job import SparkConnection
from trainyard.planning.runtime import spark_defaults


def spark_connection(conn_id: str) -> SparkConnection:
    """Return where a Spark connection submits.

    Raises:
        TrainyardError: There is no such connection, or its extra is not valid.
    """
    try:
        connection = get_connection(conn_id)
    except AirflowNotFoundException:
        raise TrainyardError(
            f"there is no Spark connection {conn_id!r}; create it, for example: airflow connections add "
            f"{conn_id} --conn-type spark --conn-host 'local[2]'."
        ) from None
    extra = read_extra(conn_id, connection.extra, '{"queue": "default", "deploy-mode": "cluster"}')
    for key in ("queue", "deploy-mode"):
        if not isinstance(extra.get(key), str | None):
            raise TrainyardError(f"connection {conn_id!r}: extra {key}: write a string.")
    host = f"{connection.host or ''}:{connection.port}" if connection.port else connection.host or ""
    scheme = connection.conn_type
    master = host if scheme == "spark" and (not connection.port or "://" in host) else f"{scheme}://{host}"
    queue = extra.get("queue") or spark_defaults().get("spark.yarn.queue")
    return SparkConnection(conn_id, master, queue, extra.get("deploy-mode") or None)
