"""Read the fields of Airflow connections.

An error names the connection and the field, and does not repeat the value: every user who is logged in may see it, and
a secret may be in a wrong field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trainyard.errors import TrainyardError


def read_urls(conn_id: str, scheme: str, text: str, port: int | None, ports: Mapping[str, int]) -> list[str]:
    """Return the URLs of a connection's hosts, each with its port.

    Args:
        conn_id: The connection.
        scheme: Its schema.
        text: Its hosts, separated by commas.
        port: Its port, which hosts without one have.
        ports: The default ports, by schema.

    Raises:
        TrainyardError: The schema is unknown, or a host is a URL or has a user.
    """
    if scheme not in ports:
        raise TrainyardError(f"connection {conn_id!r}: schema: write http or https.")
    default = port or ports[scheme]
    hosts = [host.strip() for host in text.split(",") if host.strip()]
    if any("/" in host or "@" in host for host in hosts):
        raise TrainyardError(
            f"connection {conn_id!r}: host: write it without http://, a path and a user, for example host.example.com "
            f"or host.example.com:{default}; http or https is the schema, and a user the login."
        )
    return [f"{scheme}://{host}" if ":" in host else f"{scheme}://{host}:{default}" for host in hosts]


def read_extra(conn_id: str, text: str | None, example: str) -> dict[str, Any]:
    """Return the extra of a connection.

    Args:
        conn_id: The connection.
        text: Its extra, which Airflow does not check.
        example: An extra for the error.

    Raises:
        TrainyardError: The extra is not a JSON object.
    """
    try:
        extra = json.loads(text or "{}")
    except ValueError:
        extra = None
    if not isinstance(extra, dict):
        raise TrainyardError(
            f"connection {conn_id!r}: its extra is not a JSON object; write one, for example {example}."
        )
    return extra
