"""A ResourceManager's REST interface: applications by tag, their end, nodes and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import urljoin

import requests
from requests.auth import AuthBase

from trainyard.errors import TrainyardError

LIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
SECONDS = 10


class UnreachableError(TrainyardError):
    """No ResourceManager answers at present, or the one that does is not ready: ask again later."""


@dataclass(frozen=True)
class Application:
    """One application as the ResourceManager tells of it.

    It was `started` when it was submitted, `launched` with its first container, and is `finished`: seconds since the
    epoch, 0 before. `resource_seconds` are what it has held so far: resource -> amount x seconds. `driver_logs` is the
    page with the driver's logs, whose address names its container; `log_status` says how
    far YARN is in putting the logs of all nodes together.
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

    @property
    def live(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True)
class ResourceManager:
    """The ResourceManagers of one cluster, of which one is active.

    :param urls: where each answers, such as `http://rm1:8088`
    :param user: who asks; sent as `user.name` where there is no `auth` to prove it
    :param auth: how requests are authenticated: Kerberos' SPNEGO, for example
    """

    urls: tuple[str, ...]
    user: str = ""
    auth: AuthBase | None = None

    def tagged(self, tag: str) -> list[Application]:
        """The applications that carry `tag`, oldest first."""
        answer = self.get("apps", applicationTags=tag)
        found = [_application(entry) for entry in (answer.get("apps") or {}).get("app", [])]
        return sorted(found, key=lambda application: (application.started, application.id))

    def application(self, id: str) -> Application | None:
        """One application; None when the ResourceManager does not know it (yet, or any more)."""
        answer = self._ask("GET", f"apps/{id}")
        return _application(_parsed(answer)["app"]) if answer.status_code != HTTPStatus.NOT_FOUND else None

    def kill(self, id: str) -> None:
        """End an application and its containers. One that has ended, or is unknown, is left as it is."""
        self._ask("PUT", f"apps/{id}/state", {"state": "KILLED"})

    def submit(self, *, name: str, queue: str, label: str | None, memory: int, command: str) -> str:
        """Have one container of `memory` MB run `command`; the id of its application.

        Raises TrainyardError with the ResourceManager's own words when it refuses.
        """
        id = str(self._ask("POST", "apps/new-application").json()["application-id"])
        labels = {"app-node-label-expression": label, "am-container-node-label-expression": label} if label else {}
        redirected = f"{command} 1><LOG_DIR>/stdout 2><LOG_DIR>/stderr"
        self._ask("POST", "apps", {
            "application-id": id, "application-name": name, "application-type": "TRAINYARD", "queue": queue,
            "max-app-attempts": 1, "resource": {"memory": memory, "vCores": 1},
            "am-container-spec": {"commands": {"command": redirected}}, **labels,
        })  # fmt: skip
        return id

    def setting(self, name: str) -> str | None:
        """A property of the ResourceManager's configuration, defaults among them; None when it has none."""
        answer = self._ask("GET", "/conf", query={"name": name})
        return str(answer.json()["property"]["value"]) if answer.ok and answer.content.strip() else None

    def clock(self) -> float:
        """What time it is there, in seconds since the epoch, to a second."""
        return parsedate_to_datetime(self._ask("GET", "info").headers["Date"]).timestamp()

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """What is at `path` of the cluster's REST interface."""
        answer = self._ask("GET", path, query=query)
        return _parsed(answer)

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> requests.Response:
        """The active ResourceManager's answer. Raises UnreachableError, or TrainyardError for what it refuses."""
        refused: list[str] = []
        for url in self.urls:
            params = dict(query or {}) | ({"user.name": self.user} if self.user and not self.auth else {})
            try:
                answer = requests.request(
                    method, urljoin(f"{url}/ws/v1/cluster/", path), params=params, json=body, auth=self.auth,
                    timeout=SECONDS, headers={"Accept": "application/json"},
                )  # fmt: skip
            except (requests.ConnectionError, requests.Timeout) as error:
                refused.append(f"{url}: {type(error).__name__}")
                continue
            if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or "json" not in _type(answer):
                refused.append(f"{url}: HTTP {answer.status_code}")
                continue
            if not answer.ok and answer.status_code != HTTPStatus.NOT_FOUND:
                raise TrainyardError(f"the ResourceManager at {url} refuses {method} {path}: {_refusal(answer)}")
            return answer
        raise UnreachableError(f"no ResourceManager answers as one that is active: {'; '.join(refused)}.")


def _type(answer: requests.Response) -> str:
    """The kind of an answer's body; a standby ResourceManager answers with a page."""
    return answer.headers.get("Content-Type", "json") if answer.content else "json"


def _refusal(answer: requests.Response) -> str:
    """Why, in the ResourceManager's words."""
    try:
        return str(answer.json()["RemoteException"]["message"])
    except (ValueError, KeyError):
        return f"HTTP {answer.status_code} {answer.reason}"


def _parsed(answer: requests.Response) -> dict[str, Any]:
    """The answer's JSON. A map of Hadoop's is an object in which `entry` comes several times; here it is a list."""

    def object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        entries = [value for name, value in pairs if name == "entry"]
        return dict(pairs) | ({"entry": entries} if len(entries) > 1 else {})

    return dict(answer.json(object_pairs_hook=object_of))


def _resource_seconds(told: Mapping[str, Any]) -> dict[str, float]:
    entries = told.get("entry", [])
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
    )
