"""HTML of the pages: templates, addresses and how figures are written. Everything is escaped by Jinja."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from trainyard.report import evaluations, timeline


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """The template `template`.html.j2 as an answer."""
    return HTMLResponse(_TEMPLATES.get_template(f"{template}.html.j2").render(**values), status)


def address(page: str, /, **names: Any) -> str:
    """One of these pages, relative to any other: names are put into the query, where they may hold any character."""
    return f"{page}?{urlencode(names)}" if names else page


def run_in_airflow(dag_id: str, run_id: str) -> str:
    """Airflow's own page of a run, relative to any of these pages."""
    return f"../dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}"


def hours(value: float) -> str:
    """Resource-hours in three digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def clock(at: float) -> str:
    """Seconds since the epoch as date and time, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def web(uri: str) -> bool:
    """Whether an address that was read from storage may become a link."""
    return uri.startswith(("http://", "https://"))


_TEMPLATES = Environment(
    loader=PackageLoader("trainyard.pages", "templates"), autoescape=select_autoescape(["j2"]), undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
_TEMPLATES.globals |= {"address": address, "run_in_airflow": run_in_airflow}
_TEMPLATES.filters |= {"duration": timeline.duration, "hours": hours, "clock": clock, "number": evaluations.number}
_TEMPLATES.tests["web"] = web
