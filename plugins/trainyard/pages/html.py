"""Render the pages: templates, addresses, and number formats. Jinja escapes every value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from fastapi.responses import HTMLResponse
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, select_autoescape

from trainyard.report import assets
from trainyard.report.curves import humanize
from trainyard.report.render import FILTERS
from trainyard.text import shorten


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return the template `template`.html.j2 as a response."""
    return HTMLResponse(_TEMPLATES.get_template(f"{template}.html.j2").render(**values), status)


def address(page: str, /, **names: Any) -> str:
    """Return the address of a page, relative to any other page; names go into the query, with any character."""
    return f"{page}?{urlencode(names)}" if names else page


def run_in_airflow(dag_id: str, run_id: str) -> str:
    """Return the address of Airflow's page of a run, relative to any of these pages."""
    return f"../dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def format_time(at: float) -> str:
    """Format seconds since the epoch as date and time in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def is_web(uri: str) -> bool:
    """Return whether an address that was read from storage may become a link."""
    return uri.startswith(("http://", "https://"))


_TEMPLATES = Environment(
    loader=ChoiceLoader(
        [PackageLoader("trainyard.pages", "templates"), PackageLoader("trainyard.report", "templates")]
    ),
    autoescape=select_autoescape(["j2"]),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {"address": address, "run_in_airflow": run_in_airflow, "assets": assets}
_TEMPLATES.filters |= FILTERS | {"clock": format_time, "human": humanize, "shorten": shorten}
_TEMPLATES.tests["web"] = is_web
