"""Trainyard's additions to Airflow's pages: links, and the page with a run's report."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from trainyard.links import LINKS, PAGES


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """The pages as an ASGI application, imported at the first request: only the API server serves it."""
    from trainyard.pages import app

    await app(scope, receive, send)


class TrainyardPlugin(AirflowPlugin):  # type: ignore[misc]
    """What the plugins manager looks for."""

    name = "trainyard"
    operator_extra_links: ClassVar[list[Any]] = list(LINKS)
    fastapi_apps: ClassVar[list[dict[str, Any]]] = [{"app": pages, "url_prefix": PAGES, "name": "Trainyard"}]
