"""The connection type `yarn`: how the ResourceManager is asked where HADOOP_CONF_DIR does not say it."""

from __future__ import annotations

import getpass
from typing import Any, Literal

import requests
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from pydantic import Field, ValidationError
from requests.auth import AuthBase, HTTPBasicAuth

from trainyard.errors import TrainyardError
from trainyard.schemas.document import Part
from trainyard.yarn import cluster, kerberos
from trainyard.yarn.resource_manager import ResourceManager

PORTS = {"http": 8088, "https": 8090}


def connect(conn_id: str) -> None:
    """Ask the ResourceManager by a connection, in this process from now on; "" leaves it as it is."""
    if conn_id:
        YarnHook(conn_id).use()


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


class YarnHook(BaseHook):  # type: ignore[misc]
    """Read a connection of type `yarn`: a ResourceManager, or a gateway such as Knox in front of it.

    The connection has a host (or several, separated by commas, each with an optional port), `http` or `https` as
    schema, a login, and an extra with `auth`, `gateway` and `ca_file`. Without the default connection, the
    ResourceManager is that of HADOOP_CONF_DIR, which spark-submit needs in any case.

    Args:
        conn_id: The connection.
    """

    conn_name_attr = "yarn_conn_id"
    default_conn_name = "yarn_default"
    conn_type = "yarn"
    hook_name = "YARN"

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how Airflow shows the connection's form."""
        return {
            "hidden_fields": [],
            "relabeling": {"host": "ResourceManagers", "schema": "http or https"},
            "placeholders": {"host": "rm1.example.com,rm2.example.com", "port": "8088", "schema": "http"},
        }

    def get_conn(self) -> ResourceManager:
        """Return the ResourceManager.

        Raises:
            TrainyardError: There is no such connection, a setting is not valid, or there is no Kerberos ticket.
        """
        try:
            connection = self.get_connection(self.conn_id)
        except AirflowNotFoundException:
            if self.conn_id == self.default_conn_name:
                return cluster.resource_manager()
            raise TrainyardError(
                f"there is no connection {self.conn_id!r}; create one of type yarn, with the host of the "
                "ResourceManager."
            ) from None
        extra = self._extra(connection.extra_dejson)
        scheme = connection.schema or "http"
        if scheme not in PORTS:
            raise TrainyardError(f"connection {self.conn_id!r}: schema {scheme!r}: write http or https.")
        hosts = [host.strip() for host in (connection.host or "").split(",") if host.strip()]
        if not hosts:
            raise TrainyardError(f"connection {self.conn_id!r}: host is empty; write that of the ResourceManager.")
        ported = [host if ":" in host else f"{host}:{connection.port or PORTS[scheme]}" for host in hosts]
        session = requests.Session()
        session.verify = extra.ca_file or True
        user, auth = self._authentication(extra, connection.login or "", connection.password or "")
        root = f"{extra.gateway}/v1/cluster/" if extra.gateway else "/ws/v1/cluster/"
        return ResourceManager(tuple(f"{scheme}://{host}" for host in ported), user, auth, session, root)

    def use(self) -> None:
        """Ask the ResourceManager by this connection, in this process from now on."""
        cluster.connect_by(self.conn_id, self.get_conn)

    def test_connection(self) -> tuple[bool, str]:
        """Ask the ResourceManager for its version, for the button `Test` of Airflow's form."""
        try:
            info = self.get_conn().get("info")["clusterInfo"]
        except (TrainyardError, KeyError) as error:
            return False, str(error)
        return True, f"YARN {info.get('hadoopVersion')} is {info.get('state')}, {info.get('haState')}."

    def _extra(self, given: dict[str, Any]) -> _Extra:
        try:
            return _Extra.model_validate({name: value for name, value in given.items() if value not in (None, "")})
        except ValidationError as error:
            name = ".".join(str(part) for part in error.errors()[0]["loc"])
            raise TrainyardError(
                f"connection {self.conn_id!r}: extra {name}={given.get(name)!r} is not valid; it has auth (simple, "
                "basic or kerberos), gateway (a path such as /gateway/default/resourcemanager) and ca_file."
            ) from None

    def _authentication(self, extra: _Extra, login: str, password: str) -> tuple[str, AuthBase | None]:
        """Return the user of requests, and how they are authenticated."""
        if extra.auth == "kerberos":
            return kerberos.ticket()
        if extra.auth == "basic":
            return login, HTTPBasicAuth(login, password)
        return login or getpass.getuser(), None
