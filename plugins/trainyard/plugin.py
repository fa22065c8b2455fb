"""Trainyard's additions to Airflow's pages: the link to a run's report, and the page it leads to."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from trainyard.links import PAGES, ReportLink


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """The pages as an ASGI application, imported at the first request: only the API server serves it."""
    from trainyard.pages import app

    await app(scope, receive, send)


class TrainyardPlugin(AirflowPlugin):  # type: ignore[misc]
    """What the plugins manager looks for."""

    name = "trainyard"
    operator_extra_links: ClassVar[list[Any]] = [ReportLink()]
    fastapi_apps: ClassVar[list[dict[str, Any]]] = [{"app": pages, "url_prefix": PAGES, "name": "Trainyard"}]
