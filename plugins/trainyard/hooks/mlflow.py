"""Read the Airflow connection of an MLflow tracking server."""

from __future__ import annotations

from trainyard.compat import AirflowNotFoundException, get_connection
from trainyard.errors import TrainyardError


def read_tracking_uri(conn_id: str) -> str:
    """Return the URI of the tracking server in a connection, as HttpHook reads it, without login and password.

    Raises:
        TrainyardError: There is no such connection, or it has no host.
    """
    try:
        connection = get_connection(conn_id)
    except AirflowNotFoundException:
        raise TrainyardError(
            f"there is no connection {conn_id!r} with the MLflow server; create it, for example: airflow connections "
            f"add {conn_id} --conn-type http --conn-host mlflow --conn-port 5000. Or write its URI: "
            "trackers=[{'name': 'mlflow', 'uri': 'http://mlflow:5000'}]."
        ) from None
    if not connection.host:
        raise TrainyardError(f"connection {conn_id!r} has no host; write that of the MLflow server, such as 'mlflow'.")
    uri = connection.host if "://" in connection.host else f"{connection.schema or 'http'}://{connection.host}"
    return f"{uri}:{connection.port}" if connection.port else uri
