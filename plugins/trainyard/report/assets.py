"""The style and the scripts that the report and the pages share."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from trainyard.report import palette

CHARTS = ("vendor/echarts.min.js", "assets/charts.js", "assets/timeline.js")
"""The scripts of charts, in the order in which they are loaded. README.txt beside the first says how it was built."""
THEME = "assets/theme.js"
TABLE = "assets/table.js"


@cache
def read_text(path: str) -> str:
    """Return the text of a file below this package."""
    return files("trainyard.report").joinpath(path).read_text("utf-8")


@cache
def read_style() -> str:
    """Return the style sheet, with the colors of the palette."""
    return f"{palette.css_variables()}\n{read_text('assets/style.css')}"


@cache
def read_charts() -> str:
    """Return the scripts of charts as one."""
    return "\n".join(map(read_text, CHARTS))


@cache
def charts_version() -> str:
    """Return a short hash of the scripts of charts, so that browsers may keep them forever."""
    return hashlib.sha256(read_charts().encode()).hexdigest()[:16]
