"""The Airflow plugin: links, pages, and a listener."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from airflow.plugins_manager import AirflowPlugin

from trainyard import compat, listener
from trainyard.links import LINKS, PAGES, in_airflow


async def pages(scope: Any, receive: Any, send: Any) -> None:
    """Serve the pages as an ASGI application, imported at the first request, because only the API server serves it."""
    from trainyard.pages.app import app

    await app(scope, receive, send)


class TrainyardPlugin(AirflowPlugin):  # type: ignore[misc]
    """The plugin that Airflow's plugins manager loads."""

    name = "trainyard"

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:
        """Warn of an Airflow that is newer than those that were tried."""
        if compat.is_newer():
            logging.getLogger(__name__).warning("Airflow is %s; see Trainyard's changes.", compat.describe_airflow())

    listeners: ClassVar[list[Any]] = [listener]
    operator_extra_links: ClassVar[list[Any]] = list(LINKS)
    fastapi_apps: ClassVar[list[dict[str, Any]]] = [{"app": pages, "url_prefix": PAGES, "name": "Trainyard"}]
    external_views: ClassVar[list[dict[str, Any]]] = [
        {
            "name": "Trainyard",
            "href": in_airflow(f"{PAGES}/"),
            "url_route": "trainyard",
            "destination": "nav",
            "nav_top_level": True,
        }
    ]
