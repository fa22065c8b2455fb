"""The connection type `trainyard`: where datasets, models and runs are stored."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from airflow.sdk import BaseHook
from pydantic import TypeAdapter, ValidationError

from trainyard.compat import AirflowNotFoundException, conf, get_connection
from trainyard.connection_fields import read_extra
from trainyard.errors import TrainyardError
from trainyard.files import filesystems, hadoop_conf, kerberos, trial, uris
from trainyard.planning.job import Preflight, check_preflight
from trainyard.planning.profile import Profile
from trainyard.planning.runtime import airflow_home
from trainyard.schemas.validation.secrets import IN_CREDENTIAL_STORE, find_secrets

EXTRA_FIELDS = ("storage", "shared", "webhdfs", "environment", "preflight", "profiles")
"""The keys of a connection's extra."""
_ROOT = re.compile(r"(?:/|(?:file|local):///|(?!file:|local:)[A-Za-z][A-Za-z0-9+.-]*://[^#?])[^#?\x00-\x1f]*(?<!\s)")
"""A storage root: an absolute path, or a URI; of a URI without a host there are three slashes. Spark and YARN take what
follows `#` or `?` for something else than a name."""
_ROUTES: dict[str, tuple[set[str], str]] = {}
"""Connection -> scheme, host and port of URIs that it reads through WebHDFS, and the WebHDFS connection."""

_PROFILES = TypeAdapter(dict[str, Profile])
_REPORTED: set[str] = set()
"""The connections without a storage, whose default this process has logged."""


@dataclass(frozen=True)
class Settings:
    """The content of a `trainyard` connection.

    Attributes:
        storage: The storage root, the URI that relative names are below.
        preflight: How plans are checked against the cluster, for operators without an option of their own.
        shared: Whether every node of the cluster mounts the local directories of the URIs, at the same paths.
        environment: The URI of a packed environment, with which applications run on YARN.
        profiles: What the tasks that name one request, by name.
    """

    storage: str
    preflight: Preflight = "strict"
    shared: bool = False
    environment: str | None = None
    profiles: Mapping[str, Profile] = field(default_factory=dict)

    @property
    def environments(self) -> list[str]:
        """The URIs of the packed environments of the connection and of its profiles."""
        named = (self.environment, *(profile.environment for profile in self.profiles.values()))
        return list(dict.fromkeys(uri for uri in named if uri))


class TrainyardHook(BaseHook):  # type: ignore[misc]
    """Read a connection of type `trainyard`.

    Its extra has `storage`, the URI of the storage root, and optionally `webhdfs`, the id of a connection by which HDFS
    is reached over HTTP, `preflight`, as the operators' option, `shared`, which is true for a local directory that
    every node of the cluster mounts, `environment`, the URI of a packed environment, and `profiles`, objects with the
    fields of `Profile` by the names that tasks write as `profile=`.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "trainyard_default"
    conn_type = "trainyard"
    hook_name = "Trainyard"

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how Airflow shows the connection's form."""
        return {
            "hidden_fields": ["host", "schema", "login", "password", "port"],
            "relabeling": {},
            "placeholders": {"extra": '{"storage": "file:///data/trainyard"}'},
        }

    def path(self, name: str) -> str:
        """Return the URI of a name below the storage root, as the options of operators have it; a URI as it is.

        Args:
            name: The name, such as "digits/source".

        Raises:
            TrainyardError: As `get_conn`, or it is not below the storage root.
        """
        return uris.resolve(self.get_conn().storage, name)

    def get_conn(self) -> Settings:
        """Return the settings; the default connection need not exist.

        Raises:
            TrainyardError: There is no such connection, a setting is not valid, or the storage requires Kerberos and
                there is no ticket.
        """
        extra = self._read_extra()
        root = self._check_root(extra["storage"]) if "storage" in extra else default_storage()
        if "storage" not in extra:
            self._report_default()
        if "webhdfs" in extra:
            self._use_webhdfs(root if root.startswith("hdfs://") else "hdfs://", self._check_route(extra["webhdfs"]))
        else:
            kerberos.require_ticket(root)
        preflight = extra.get("preflight") or conf.get("trainyard", "preflight", fallback="strict")
        checked = check_preflight(str(preflight), f"connection {self.conn_id!r}")
        shared = self._is_shared(extra.get("shared", False))
        environment, profiles = self._environment(extra.get("environment")), self._profiles(extra.get("profiles"))
        return Settings(root, checked, shared, environment, profiles)

    def read_profiles(self) -> dict[str, Profile]:
        """Return the profiles of the connection, without a look at its storage.

        Raises:
            TrainyardError: There is no such connection, or a profile is not valid.
        """
        return self._profiles(self._read_extra().get("profiles"))

    def test_connection(self) -> tuple[bool, str]:
        """Write a file to the storage, and remove it, for the button `Test` of Airflow's form."""
        try:
            root = self.get_conn().storage
        except TrainyardError as error:
            return False, str(error)
        with filesystems.while_person_waits():
            problem = trial.write_error(root)
        return not problem, f"{root} cannot be written to: {problem}" if problem else f"{root} can be written to."

    def _read_extra(self) -> dict[str, Any]:
        """Return the extra of the connection, without the fields that Airflow's form leaves empty."""
        try:
            text = get_connection(self.conn_id).extra
        except AirflowNotFoundException:
            if self.conn_id != self.default_conn_name:
                raise TrainyardError(
                    f"there is no connection {self.conn_id!r}; create one of type trainyard, with "
                    'extra {"storage": "file:///..."}.'
                ) from None
            return {}
        except ValueError:
            raise TrainyardError(
                f"connection {self.conn_id!r} is not valid JSON where Airflow reads it, in the environment or a "
                'secrets backend; write {"conn_type": "trainyard", "extra": {"storage": "file:///data/trainyard"}}.'
            ) from None
        extra = read_extra(self.conn_id, text, '{"storage": "file:///data/trainyard"}')
        if unknown := [key for key in extra if key not in EXTRA_FIELDS]:
            raise TrainyardError(
                f"connection {self.conn_id!r}: extra has the unknown key {unknown[0]!r}; known are "
                f"{', '.join(EXTRA_FIELDS)}."
            )
        return {key: value for key, value in extra.items() if value not in (None, "")}

    def _report_default(self) -> None:
        """Log once where the storage is, since no connection says so."""
        if self.conn_id not in _REPORTED:
            _REPORTED.add(self.conn_id)
            if warning := warn_of_hosts(self.conn_id, conf.get("core", "executor")):
                self.log.warning(warning)
            else:
                self.log.info("Connection %r names no storage; results are in %s.", self.conn_id, default_storage())

    def _check_root(self, value: Any) -> str:
        if not isinstance(value, str) or not _ROOT.fullmatch(value):
            raise TrainyardError(
                f"connection {self.conn_id!r}: extra storage: write a URI with all its slashes and without "
                "#, ? or a space at the end, for example hdfs://namenode:8020/trainyard or "
                "file:///data/trainyard, or an absolute path."
            )
        return self._without_secret("storage", value)

    def _without_secret(self, name: str, uri: str) -> str:
        """Return a URI of the extra. Raises TrainyardError if it has a secret: pages, records and logs have the URI."""
        if find_secrets({name: uri}):
            raise TrainyardError(
                f"connection {self.conn_id!r}: extra {name} has a secret in its URI, which pages and logs show. "
                f"{IN_CREDENTIAL_STORE}, and write the URI without it."
            )
        return uri

    def _check_route(self, value: Any) -> str:
        if not isinstance(value, str):
            raise TrainyardError(
                f"connection {self.conn_id!r}: extra webhdfs: write the id of a connection of type webhdfs."
            )
        return value

    def _use_webhdfs(self, uri: str, route: str) -> None:
        """Read HDFS on the host of `uri` through WebHDFS, in this process from now on.

        A URI without a host is on the default file system of Hadoop's configuration.
        """
        try:
            from trainyard.hooks import webhdfs
        except ModuleNotFoundError as error:
            if error.name != "hdfs":
                raise
            raise TrainyardError(
                f"connection {self.conn_id!r}: webhdfs={route!r} needs the package hdfs. Install "
                "airflow-trainyard[webhdfs]."
            ) from None
        default = hadoop_conf.read_site("core-site.xml").get("fs.defaultFS", "")
        hosts = {_host(uri)} | ({"hdfs://"} if _host(uri) == _host(default) else set())
        for other, (others_hosts, others_route) in _ROUTES.copy().items():
            if other != self.conn_id and others_route != route and hosts & others_hosts:
                raise TrainyardError(
                    f"connection {self.conn_id!r} reads {_host(uri)} through WebHDFS connection {route!r}, and "
                    f"connection {other!r} through {others_route!r}. Write the NameNode of each into its storage, for "
                    "example hdfs://namenode:8020/trainyard; or, for one cluster, the same webhdfs into both."
                )
        filesystem = webhdfs.connect(route)
        for host in hosts:
            filesystems.register(host, filesystem)
        _ROUTES[self.conn_id] = hosts, route

    def _environment(self, value: Any) -> str | None:
        if not value:
            return None
        if not isinstance(value, str) or "://" not in value or "#" in value:
            raise TrainyardError(
                f"connection {self.conn_id!r}: extra environment: write the URI of an archive that `trainyard "
                "environment pack` made, for example hdfs:///trainyard/environments/NAME.tar.gz."
            )
        return self._without_secret("environment", value)

    def _profiles(self, value: Any) -> dict[str, Profile]:
        try:
            profiles = _PROFILES.validate_python(value or {})
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, ("profiles", *first["loc"])))
            raise TrainyardError(
                f"connection {self.conn_id!r}: extra {field} is not valid ({first['type']}); profiles are objects by "
                'name, such as {"gpu": {"node_label": "gpu", "gpus_per_worker": 1, "memory": "16g"}}, with '
                f"{', '.join(one.name for one in fields(Profile))}."
            ) from None
        for name, profile in profiles.items():
            self._environment(profile.environment)
            if find_secrets(asdict(profile)):
                raise TrainyardError(
                    f"connection {self.conn_id!r}: extra profiles.{name} has a secret, which pages and logs show. "
                    f"{IN_CREDENTIAL_STORE}."
                )
        return profiles

    def _is_shared(self, value: Any) -> bool:
        try:
            return TypeAdapter(bool).validate_python(value)
        except ValidationError:
            raise TrainyardError(
                f"connection {self.conn_id!r}: extra shared: write true or false; true if every node of the "
                "cluster mounts the storage at the same path."
            ) from None


def _host(uri: str) -> str:
    """Return scheme, host and port of a URI."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}"


def warn_of_hosts(conn_id: str, executors: str) -> str:
    """Return what is wrong with the default storage, if an executor runs tasks on several hosts; else "".

    Args:
        conn_id: The connection, which names no storage.
        executors: Airflow's setting `[core] executor`.
    """
    remote = [one for one in executors.split(",") if "LocalExecutor" not in one]
    if not remote:
        return ""
    return (
        f"connection {conn_id!r} names no storage, so each host uses {default_storage()} of its own, and {remote[0]} "
        'runs tasks on several hosts: a task may not find what another one wrote. Write {"storage": "..."}, a URI that '
        "all hosts share, into its extra."
    )


def default_storage() -> str:
    """Return the storage root without a connection: `trainyard/` in AIRFLOW_HOME."""
    return f"file://{airflow_home() / 'trainyard'}"  # as_uri() encodes spaces and umlauts, which names keep here
