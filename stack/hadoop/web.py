"""What daemons of Hadoop say of themselves over HTTP."""

from __future__ import annotations

from typing import Any

import requests
from requests.auth import AuthBase

SECONDS = 5
"""How long an answer may take."""


def get(url: str, query: dict[str, str], auth: AuthBase | None) -> Any:
    """Return the JSON at a URL. Raises requests.RequestException."""
    headers = {"Accept": "application/json"}
    response = requests.get(url, params=query, headers=headers, auth=auth, timeout=SECONDS)
    response.raise_for_status()
    return response.json(object_pairs_hook=_merge_entries)


def get_bean(url: str, name: str, auth: AuthBase | None) -> dict[str, Any]:
    """Return a bean of the JVM whose pages are at `url`. Raises requests.RequestException."""
    return dict(get(f"{url}/jmx", {"qry": name}, auth)["beans"][0])


def post(url: str, user: str, body: Any, auth: AuthBase | None) -> None:
    """Send JSON to a URL as a user. Raises requests.RequestException."""
    requests.post(url, params={"user.name": user}, json=body, auth=auth, timeout=SECONDS).raise_for_status()


def put(url: str, query: dict[str, str]) -> None:
    """Ask for a change of HDFS by WebHDFS. Raises requests.RequestException."""
    requests.put(url, params=query, timeout=SECONDS).raise_for_status()


def _merge_entries(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON. Hadoop before 3.5 writes a map as repeated keys `entry`, which become a list."""
    entries = [value for name, value in pairs if name == "entry"]
    return dict(pairs) | ({"entry": entries} if len(entries) > 1 else {})
