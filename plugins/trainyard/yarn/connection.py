"""Airflow connections of type `yarn`: how the ResourceManager is asked where HADOOP_CONF_DIR does not say it.

The functions that read the extra and the hosts are those of other connections, too.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from airflow.sdk import BaseHook
from pydantic import Field, ValidationError
from requests.auth import AuthBase, HTTPBasicAuth

from trainyard.compat import AirflowNotFoundException
from trainyard.errors import TrainyardError
from trainyard.planning.runtime import submitting_user
from trainyard.schemas.document import Part
from trainyard.schemas.validation.secrets import redact
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
    scheme = connection.schema or "http"
    if scheme not in PORTS:
        raise TrainyardError(f"connection {conn_id!r}: schema {scheme!r}: write http or https.")
    hosts = read_hosts(conn_id, connection.host or "", connection.port or PORTS[scheme])
    if not hosts:
        raise TrainyardError(f"connection {conn_id!r}: host is empty; write that of the ResourceManager.")
    user, auth = _authenticate(extra, connection.login or "", connection.password or "")
    return ResourceManager(
        tuple(f"{scheme}://{host}" for host in hosts), user, auth, verify=extra.ca_file or True,
        root=f"{extra.gateway}/v1/cluster/" if extra.gateway else ROOT,
    )  # fmt: skip


def read_hosts(conn_id: str, text: str, port: int) -> list[str]:
    """Return the hosts of a connection, each with its port.

    Args:
        conn_id: The connection.
        text: Its hosts, separated by commas.
        port: The port of hosts without one.

    Raises:
        TrainyardError: A host is a URL.
    """
    hosts = [host.strip() for host in text.split(",") if host.strip()]
    for host in hosts:
        if "/" in host:
            raise TrainyardError(
                f"connection {conn_id!r}: host {redact(host)!r}: write it without http:// and a path, for example "
                f"host.example.com or host.example.com:{port}; http or https is the schema."
            )
    return [host if ":" in host else f"{host}:{port}" for host in hosts]


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
        name = ".".join(str(part) for part in error.errors()[0]["loc"])
        value = f"={given[name]!r}" if name in _Extra.model_fields else ""  # another one may be a secret
        raise TrainyardError(
            f"connection {conn_id!r}: extra {name}{value} is not valid; it has auth (simple, basic or kerberos), "
            "gateway (a path such as /gateway/default/resourcemanager) and ca_file."
        ) from None
    if extra.ca_file and not Path(extra.ca_file).is_file():
        raise TrainyardError(f"connection {conn_id!r}: extra ca_file={extra.ca_file!r} is no file of this machine.")
    return extra


def _authenticate(extra: _Extra, login: str, password: str) -> tuple[str, AuthBase | None]:
    """Return the user of requests, and how they are authenticated."""
    if extra.auth == "kerberos":
        return kerberos.ticket()
    if extra.auth == "basic":
        return login, HTTPBasicAuth(login, password)
    return login or submitting_user(), None
