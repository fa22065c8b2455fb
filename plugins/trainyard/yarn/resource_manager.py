"""The ResourceManager's REST interface: applications, nodes and settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, TypeVar
from urllib.parse import urljoin

import requests
from requests.auth import AuthBase
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from trainyard.errors import TrainyardError, UnavailableError

T = TypeVar("T")

WAITING = "ACCEPTED"
"""The state of an application whose driver waits for a container."""
ROOT = "/ws/v1/cluster/"
"""The path of the REST interface."""
_APPLICATION = re.compile(r"application_\d{1,20}_\d{1,10}")
LIVE = ("NEW", "NEW_SAVING", "SUBMITTED", WAITING, "RUNNING")
CONNECT_SECONDS = 3
READ_SECONDS = 10
LIST_SECONDS = 60
"""How long the next bytes of a list may take: a ResourceManager writes thousands of nodes and applications in seconds,
and nothing before it has all of them."""
KILL_SECONDS = 120.0
"""How long a kill is repeated: a failover takes less."""
KILL_INTERVAL_SECONDS = 0.5

_active: dict[tuple[str, ...], str] = {}
"""Which ResourceManager of a cluster answered last. It is asked first: one that is down costs a timeout each time."""


class UnreachableError(UnavailableError):
    """No ResourceManager answers, or the one that does is not active yet. A later request may succeed."""


@dataclass(frozen=True)
class Archive:
    """An archive in storage, which YARN refuses if it has changed since.

    Attributes:
        uri: Its URI.
        bytes: Its size.
        modified: When it was written, in milliseconds since the epoch.
    """

    uri: str
    bytes: int
    modified: int


@dataclass(frozen=True)
class Application:
    """The state of an application.

    Attributes:
        id: The id.
        state: YARN's state, for example "RUNNING".
        final_status: The status that the application reported.
        queue: The queue.
        diagnostics: YARN's diagnostics.
        tracking_url: The application's own page.
        started: When it was submitted, in seconds since the epoch.
        driver_logs: The page with the driver's logs; its address contains the container id.
        log_status: The state of log aggregation.
        user: The user who submitted it.
        launched: When its first container started, in seconds since the epoch; 0 before.
        finished: When it ended, in seconds since the epoch; 0 before.
        resource_seconds: Resource -> allocated amount x seconds.
        tags: The tags.
        name: The name, of DAG and task.
    """

    id: str
    state: str
    final_status: str
    queue: str
    diagnostics: str
    tracking_url: str
    started: float
    driver_logs: str = ""
    log_status: str = "DISABLED"
    user: str = ""
    launched: float = 0.0
    finished: float = 0.0
    resource_seconds: Mapping[str, float] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    name: str = ""

    @property
    def live(self) -> bool:
        """Whether the application has not ended."""
        return self.state in LIVE

    @property
    def age_key(self) -> tuple[float, int]:
        """The key that sorts applications from the oldest to the youngest; some start within a millisecond."""
        return self.started, int(self.id.rpartition("_")[2])


def _check_id(id: str) -> str:
    """Return the id of an application. Raises TrainyardError if it is none: it would be another path of a URL."""
    if not _APPLICATION.fullmatch(id):
        raise TrainyardError(
            f"{id[:80]!r} is not the id of an application of YARN, such as application_1790000000_0001."
        )
    return id


@dataclass(frozen=True)
class ResourceManager:
    """The ResourceManagers of one cluster, of which one is active.

    Args:
        urls: The URL of each, for example `http://rm1:8088`.
        user: The user of requests, sent as `user.name` unless there is `auth`.
        auth: The authentication of requests, for example SPNEGO.
        session: The connections, and the cookies by which a server knows an authenticated client again.
        root: The path of the REST interface, another one behind a gateway such as Knox.
        verify: The file of the certificates that are trusted, or True for those of the system.
    """

    urls: tuple[str, ...]
    user: str = ""
    auth: AuthBase | None = None
    session: requests.Session = field(default_factory=requests.Session, compare=False, repr=False)
    root: str = ROOT
    verify: bool | str = True

    @property
    def is_behind_gateway(self) -> bool:
        """Whether requests go through a gateway, which knows other paths, and has passwords of its own."""
        return self.root != ROOT

    def tagged(self, tag: str, states: Iterable[str] = ()) -> list[Application]:
        """Return the applications with a tag, or those of them in `states`, oldest first."""
        return self._list(applicationTags=tag, **({"states": ",".join(states)} if states else {}))

    def list_live(self, tag: str) -> list[Application]:
        """Return the applications with a tag that have not ended, oldest first."""
        return self.tagged(tag, LIVE)

    def in_state(self, state: str) -> list[Application]:
        """Return the applications of all users in a state, oldest first."""
        return self._list(states=state, deSelects="resourceRequests")

    def _list(self, **query: str) -> list[Application]:
        answer = self.get("apps", **query)
        applications = [_application(entry) for entry in (answer.get("apps") or {}).get("app", [])]
        return sorted(applications, key=lambda application: application.age_key)

    def application(self, id: str) -> Application | None:
        """Return an application, None if the ResourceManager has no such application (yet, or any more)."""
        answer = self._ask("GET", f"apps/{_check_id(id)}")
        return _application(_parsed(answer)["app"]) if answer.status_code != HTTPStatus.NOT_FOUND else None

    def kill(self, id: str) -> None:
        """Kill an application and its containers. Does nothing for one that has ended, or is unknown.

        It is repeated while no ResourceManager is active.

        Raises:
            UnreachableError: None was active for two minutes.
        """
        _repeat(self._ask, "PUT", f"apps/{_check_id(id)}/state", {"state": "KILLED"})

    def kill_named(self, id: str, name: str) -> None:
        """Kill an application if it is live and has a name, of DAG and task. It is repeated as `kill` is.

        Raises:
            TrainyardError: It has another name.
        """
        application = _repeat(self.application, id)
        if application is None or not application.live:
            return
        if application.name != name:
            raise TrainyardError(f"{id} is {application.name!r}, and not {name!r}; it was not killed.")
        self.kill(id)

    def kill_tagged(self, tag: str) -> None:
        """Kill every live application with a tag. It is repeated as `kill` is."""
        for application in _repeat(self.tagged, tag, LIVE):
            self.kill(application.id)

    def submit(
        self, *, name: str, queue: str, label: str | None, memory: int, command: str,
        archives: Mapping[str, Archive] | None = None, environment: Mapping[str, str] | None = None,
    ) -> str:  # fmt: skip
        """Submit an application with a single container, and return its id.

        Args:
            name: The name of the application.
            queue: The queue.
            label: The node label, or None.
            memory: The memory of the container, in MB.
            command: The command that the container runs.
            archives: Archives by the folder of the container where they are unpacked.
            environment: Environment variables of the container.

        Raises:
            TrainyardError: The ResourceManager refuses it; the message is YARN's.
        """
        id = str(self._ask("POST", "apps/new-application").json()["application-id"])
        labels = {"app-node-label-expression": label, "am-container-node-label-expression": label} if label else {}
        resources = [{"key": folder, "value": _as_resource(file)} for folder, file in (archives or {}).items()]
        variables = [{"key": name, "value": value} for name, value in (environment or {}).items()]
        redirected = f"{command} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"
        self._ask("POST", "apps", {
            "application-id": id, "application-name": name, "application-type": "TRAINYARD", "queue": queue,
            "max-app-attempts": 1, "resource": {"memory": memory, "vCores": 1},
            "am-container-spec": {
                "commands": {"command": redirected}, "local-resources": {"entry": resources},
                "environment": {"entry": variables},
            },
            **labels,
        })  # fmt: skip
        return id

    def settings(self) -> dict[str, str]:
        """Return the ResourceManager's configuration with its defaults; empty where this user may not read it.

        A gateway does not forward the request.
        """
        if self.is_behind_gateway:
            return {}
        try:
            properties = _parsed(self._ask("GET", "/conf")).get("properties", [])
        except TrainyardError:
            return {}
        return {entry["key"]: str(entry["value"]) for entry in properties}

    def clock(self) -> float:
        """Return the ResourceManager's time, in seconds since the epoch, to a second."""
        return parsedate_to_datetime(self._ask("GET", "info").headers["Date"]).timestamp()

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Return the JSON at `path` of the cluster's REST interface."""
        return _parsed(self._ask("GET", path, query=query, seconds=LIST_SECONDS))

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None,
        seconds: float | None = None,
    ) -> requests.Response:  # fmt: skip
        """Return the active ResourceManager's answer. Raises UnreachableError, and TrainyardError for a refusal."""
        refused: list[str] = []
        active = _active.get(self.urls)
        for url in sorted(self.urls, key=lambda url: url != active):
            params = dict(query or {}) | ({"user.name": self.user} if self.user and not self.auth else {})
            try:
                answer = self.session.request(
                    method, urljoin(f"{url}{self.root}", path), params=params, json=body, auth=self.auth,
                    timeout=(CONNECT_SECONDS, seconds or READ_SECONDS), verify=self.verify,
                    headers={"Accept": "application/json"},
                )  # fmt: skip
            except requests.RequestException as error:
                refused.append(f"{url}: {type(error).__name__}")
                continue
            if not _is_active(answer, has_id=path.startswith("apps/application_")):
                refused.append(f"{url}: HTTP {answer.status_code}")
                continue
            if not answer.ok and answer.status_code != HTTPStatus.NOT_FOUND:
                raise TrainyardError(f"the ResourceManager at {url} refuses {method} {path}: {_refusal(answer)}")
            _active[self.urls] = url
            return answer
        raise UnreachableError(f"no active ResourceManager answers: {'; '.join(refused)}.")


def _repeat(function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a request, which is repeated while no ResourceManager is active."""
    attempts = Retrying(
        retry=retry_if_exception_type(UnreachableError),
        stop=stop_after_delay(KILL_SECONDS),
        wait=wait_fixed(KILL_INTERVAL_SECONDS),
        reraise=True,
    )
    return attempts(function, *arguments)


def _is_active(answer: requests.Response, has_id: bool) -> bool:
    """Return whether an answer is that of an active ResourceManager, also a refusal.

    Args:
        answer: The answer.
        has_id: Whether an application was named, which a ResourceManager may not have. Elsewhere only a gateway answers
            that something is not found.
    """
    match answer.status_code:
        case HTTPStatus.UNAUTHORIZED | HTTPStatus.FORBIDDEN:
            return True
        case HTTPStatus.NOT_FOUND if not has_id:
            return False
        case status:
            return status < HTTPStatus.INTERNAL_SERVER_ERROR and "json" in _type(answer)


def _type(answer: requests.Response) -> str:
    """Return the content type of an answer; a standby ResourceManager answers with HTML."""
    return answer.headers.get("Content-Type", "json") if answer.content else "json"


def _refusal(answer: requests.Response) -> str:
    """Return the reason that the ResourceManager states."""
    try:
        return str(answer.json()["RemoteException"]["message"])
    except (ValueError, KeyError):
        return f"HTTP {answer.status_code} {answer.reason}"


def _parsed(answer: requests.Response) -> dict[str, Any]:
    """Parse the answer's JSON. Hadoop writes a map as an object with repeated keys `entry`; it becomes a list.

    Raises:
        UnreachableError: It is no JSON, as from a proxy in front of a ResourceManager that is down.
    """

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = [value for name, value in pairs if name == "entry"]
        return dict(pairs) | ({"entry": entries} if len(entries) > 1 else {})

    try:
        return dict(answer.json(object_pairs_hook=object_of))
    except ValueError:
        raise UnreachableError(f"{answer.url} answers {answer.text[:80]!r}, which is not JSON.") from None


def _resource_seconds(counts: Mapping[str, Any]) -> dict[str, float]:
    entries = counts.get("entry", [])
    entries = entries if isinstance(entries, list) else [entries]
    return {one["key"]: float(one["value"]) for one in entries}


def _application(entry: Mapping[str, Any]) -> Application:
    return Application(
        id=entry["id"],
        state=entry["state"],
        final_status=entry.get("finalStatus", "UNDEFINED"),
        queue=entry.get("queue", ""),
        diagnostics=entry.get("diagnostics", ""),
        tracking_url=entry.get("trackingUrl", ""),
        started=entry.get("startedTime", 0) / 1000,
        driver_logs=entry.get("amContainerLogs", ""),
        user=entry.get("user", ""),
        log_status=entry.get("logAggregationStatus", "DISABLED"),
        launched=entry.get("launchTime", 0) / 1000,
        finished=entry.get("finishedTime", 0) / 1000,
        resource_seconds=_resource_seconds(entry.get("resourceSecondsMap") or {}),
        tags=frozenset(filter(None, entry.get("applicationTags", "").split(","))),
        name=entry.get("name", ""),
    )


def _as_resource(archive: Archive) -> dict[str, Any]:
    """Return the description of an archive that YARN unpacks on a node, and keeps there for this user."""
    return {
        "resource": archive.uri, "type": "ARCHIVE", "visibility": "PRIVATE", "size": archive.bytes,
        "timestamp": archive.modified,
    }  # fmt: skip
