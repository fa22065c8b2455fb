"""Read Airflow connections of type `spark`."""

from __future__ import annotations

import re

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from trainyard.errors import TrainyardError
from trainyard.planning.job import SparkConnection
from trainyard.planning.runtime import spark_defaults
from trainyard.yarn.connection import read_extra

_MASTER = re.compile(r"yarn|local(-cluster)?(\[.+\])?|(spark|k8s)://.+")


def spark_connection(conn_id: str) -> SparkConnection:
    """Return where a Spark connection submits.

    Raises:
        TrainyardError: There is no such connection, it names no master of Spark, or its extra is not valid.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise TrainyardError(
            f"there is no Spark connection {conn_id!r}; create it, for example: airflow connections add "
            f"{conn_id} --conn-type spark --conn-host 'local[2]'."
        ) from None
    extra = read_extra(conn_id, connection.extra, '{"queue": "default", "deploy-mode": "cluster"}')
    for key in ("queue", "deploy-mode"):
        if not isinstance(value := extra.get(key), str | None):
            raise TrainyardError(f"connection {conn_id!r}: extra {key}={value!r}: write a string.")
    host = f"{connection.host or ''}:{connection.port}" if connection.port else connection.host or ""
    scheme = connection.conn_type
    master = host if scheme == "spark" and (not connection.port or "://" in host) else f"{scheme}://{host}"
    if not _MASTER.fullmatch(master):
        raise TrainyardError(
            f"connection {conn_id!r} of type {scheme!r} has the master {master!r}; write a connection of type spark "
            "whose host is yarn, local[2] or a URL such as spark://master:7077."
        )
    queue = extra.get("queue") or spark_defaults().get("spark.yarn.queue")
    return SparkConnection(conn_id, master, queue, extra.get("deploy-mode") or None)
