"""A ResourceManager's REST interface: applications by tag, their end, nodes and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import requests
from requests.auth import AuthBase

from trainyard.contract.errors import TrainyardError

LIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
SECONDS = 10


class UnreachableError(TrainyardError):
    """No ResourceManager answers at present, or the one that does is not ready: ask again later."""


@dataclass(frozen=True)
class Application:
    """One application as the ResourceManager tells of it. `started` is in seconds since the epoch."""

    id: str
    state: str
    final_status: str
    queue: str
    diagnostics: str
    tracking_url: str
    started: float

    @property
    def live(self) -> bool:
        return self.state in LIVE


@dataclass(frozen=True)
class ResourceManager:
    """The ResourceManagers of one cluster, of which one is active.

    :param urls: where each answers, such as `http://rm1:8088`
    :param user: who asks, where the cluster believes it (`user.name`); not sent with `auth`
    :param verify: whether certificates are verified, or the file of those that are trusted
    :param auth: how requests are authenticated: Kerberos' SPNEGO, for example
    """

    urls: tuple[str, ...]
    user: str | None = None
    verify: bool | str = True
    auth: AuthBase | None = None

    def tagged(self, tag: str) -> list[Application]:
        """The applications that carry `tag`, oldest first."""
        answer = self.get("apps", applicationTags=tag)
        found = [_application(entry) for entry in (answer.get("apps") or {}).get("app", [])]
        return sorted(found, key=lambda application: (application.started, application.id))

    def application(self, id: str) -> Application | None:
        """One application; None when the ResourceManager does not know it (yet, or any more)."""
        answer = self._ask("GET", f"apps/{id}")
        return _application(answer.json()["app"]) if answer.status_code != HTTPStatus.NOT_FOUND else None

    def kill(self, id: str) -> None:
        """End an application and its containers. One that has ended, or is unknown, is left as it is."""
        self._ask("PUT", f"apps/{id}/state", {"state": "KILLED"})

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """What is at `path` of the cluster's REST interface."""
        answer = self._ask("GET", path, query=query)
        return dict(answer.json())

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, query: Mapping[str, str] | None = None
    ) -> requests.Response:
        """The active ResourceManager's answer. Raises UnreachableError, or HTTPError for what it refuses."""
        refused: list[str] = []
        for url in self.urls:
            params = dict(query or {}) | ({"user.name": self.user} if self.user and not self.auth else {})
            try:
                answer = requests.request(
                    method, f"{url}/ws/v1/cluster/{path}", params=params, json=body, auth=self.auth, timeout=SECONDS,
                    verify=self.verify, headers={"Accept": "application/json"},
                )  # fmt: skip
            except (requests.ConnectionError, requests.Timeout) as error:
                refused.append(f"{url}: {type(error).__name__}")
                continue
            if answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR or "json" not in _type(answer):
                refused.append(f"{url}: HTTP {answer.status_code}")
                continue
            if answer.status_code != HTTPStatus.NOT_FOUND:
                answer.raise_for_status()
            return answer
        raise UnreachableError(f"no ResourceManager answers as one that is active: {'; '.join(refused)}.")


def _type(answer: requests.Response) -> str:
    """The kind of an answer's body; a standby ResourceManager answers with a page."""
    return answer.headers.get("Content-Type", "json") if answer.content else "json"


def _application(entry: Mapping[str, Any]) -> Application:
    return Application(
        id=entry["id"],
        state=entry["state"],
        final_status=entry.get("finalStatus", "UNDEFINED"),
        queue=entry.get("queue", ""),
        diagnostics=entry.get("diagnostics", ""),
        tracking_url=entry.get("trackingUrl", ""),
        started=entry.get("startedTime", 0) / 1000,
    )
