"""Airflow connections of type `yarn`: how the ResourceManager is asked where HADOOP_CONF_DIR does not say it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError
from requests.auth import AuthBase, HTTPBasicAuth

from trainyard.compat import AirflowNotFoundException, get_connection
from trainyard.connection_fields import read_extra, read_urls
from trainyard.errors import TrainyardError
from trainyard.files import kerberos
from trainyard.planning.runtime import submitting_user
from trainyard.schemas.document import Part
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
        connection = get_connection(conn_id)
    except AirflowNotFoundException:
        raise TrainyardError(
            f"there is no connection {conn_id!r}; create one of type yarn, with the host of the ResourceManager."
        ) from None
    extra = _read_extra(conn_id, connection.extra)
    urls = read_urls(conn_id, connection.schema or "http", connection.host or "", connection.port, PORTS)
    if not urls:
        raise TrainyardError(f"connection {conn_id!r}: host is empty; write that of the ResourceManager.")
    user, auth = _authenticate(extra, connection.login or "", connection.password or "")
    return ResourceManager(
        tuple(urls), user, auth, verify=extra.ca_file or True,
        root=f"{extra.gateway}/v1/cluster/" if extra.gateway else ROOT,
    )  # fmt: skip


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
