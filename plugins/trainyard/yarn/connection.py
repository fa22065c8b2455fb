"""Airflow connections of type `yarn`: how the ResourceManager is asked where HADOOP_CONF_DIR does not say it.

The functions that read the extra and the URLs are those of other connections, too. An error names the connection and
the field, and does not repeat the value: every user who is logged in may see it, and a secret may be in a wrong field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from airflow.sdk import BaseHook
from pydantic import Field, ValidationError
from requests.auth import AuthBase, HTTPBasicAuth

from trainyard.compat import AirflowNotFoundException
from trainyard.errors import TrainyardError
from trainyard.planning.runtime import submitting_user
from trainyard.schemas.document import Part
from trainyard.yarn import kerberos
from trainyard.yarn.resource_manager import ROOT, ResourceManager

PORTS = {"http": 8088, "https": 8090}


class _Extra(Part):
    """The extra of a connection.

    Attributes:
        auth: `simple`: the login is sent as `user.name`. `basic`: login and password, as for Knox. `kerberos`: the
            ticket of this process.
        gateway: The path of the ResourceManager behind a gateway, for example `/gateway/default/resourcemanager`.
        ca_file: The certificates that are trusted; by default those of the system.
    """

    auth: Literal["simple", "basic", "kerberos"] = "simple"
    gateway: str = Field(default="", pattern="^(/.+[^/])?$")
    ca_file: str | None = None


def read_connection(conn_id: str) -> ResourceManager:
    """Return the ResourceManager of a connection.

    Raises:
        TrainyardError: There is no such connection, a setting is not valid, or there is no Kerberos ticket.
    """
    try:
        connection = BaseHook.get_connection(conn_id)
    except AirflowNotFoundException:
        raise TrainyardError(
            f"there is no connection {conn_id!r}; create one of type yarn, with the host of the ResourceManager."
        ) from None
    extra = _read_extra(conn_id, connection.extra)
    urls = read_urls(conn_id, connection.schema or "http", connection.host or "", connection.port)
    if not urls:
        raise TrainyardError(f"connection {conn_id!r}: host is empty; write that of the ResourceManager.")
    user, auth = _authenticate(extra, connection.login or "", connection.password or "")
    return ResourceManager(
        tuple(urls), user, auth, verify=extra.ca_file or True,
        root=f"{extra.gateway}/v1/cluster/" if extra.gateway else ROOT,
    )  # fmt: skip


def read_urls(
    conn_id: str, scheme: str, text: str, port: int | None, ports: Mapping[str, int] = MappingProxyType(PORTS)
) -> list[str]:
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


def _read_extra(conn_id: str, text: str | None) -> _Extra:
    given = read_extra(conn_id, text, '{"auth": "basic", "gateway": "/gateway/default/resourcemanager"}')
    try:
        extra = _Extra.model_validate({name: value for name, value in given.items() if value not in (None, "")})
    except ValidationError as error:
        raise TrainyardError(
            f"connection {conn_id!r}: extra {error.errors()[0]['loc'][0]} is not valid; it has auth "
            "(simple, basic or kerberos), gateway (a path such as /gateway/default/resourcemanager) and ca_file."
        ) from None
    if extra.ca_file and not Path(extra.ca_file).is_file():
        raise TrainyardError(f"connection {conn_id!r}: extra ca_file is no file of this machine.")
    return extra


def _authenticate(extra: _Extra, login: str, password: str) -> tuple[str, AuthBase | None]:
    """Return the user of requests, and how they are authenticated."""
    if extra.auth == "kerberos":
        return kerberos.ticket()
    if extra.auth == "basic":
        return login, HTTPBasicAuth(login, password)
    return login or submitting_user(), None
