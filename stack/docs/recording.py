"""Run a pipeline, and draw the terminal that shows it and the report of the run: `make recording`.

    python -m stack.docs.recording

It runs on the cluster that the environment selects, and writes docs/images/terminal.svg and docs/images/report.png.
It needs Chromium and its driver.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from stack.docs.__main__ import DOCS
from trainyard.files import storage

FILE = DOCS / "images" / "terminal.svg"
PICTURE = DOCS / "images" / "report.png"
PICTURE_SIZE = "1280,1560"
DRAWING_SECONDS = 60
WIDTH = 118
COMMANDS = (
    "trainyard plan digits | sed -n 1,5p",
    "trainyard preflight digits | grep ^train | sed 's/   */ | /g'",
    """airflow dags test digits -c '{"epochs": 60}' 2>&1 | grep -oE 'application_\\w+ is RUNNING|epoch .* left'""",
    f"trainyard run show digits | cut -c1-{WIDTH}",
)
"""What the terminal shows: plan, check, run, and look at the result."""
_FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
  line-height: {line_height}px; font-variant-east-asian: full-width }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/>
</clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""The SVG of rich, without fonts of another host."""


def run(command: str) -> str:
    """Return the output of a command that succeeds."""
    bash = ["/usr/bin/env", "bash", "-o", "pipefail", "-c", command]
    return subprocess.run(bash, capture_output=True, text=True, check=True).stdout


def draw(steps: Sequence[tuple[str, str]]) -> str:
    """Return the drawing of a terminal with commands and their outputs."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for command, output in steps:
        console.print(Text("$ ", "bold green") + Text(command, "bold"))
        console.print(_paint(output.rstrip()), soft_wrap=False)
        console.print()
    return console.export_svg(title="", theme=SVG_EXPORT_THEME, code_format=_FORMAT, unique_id="terminal")


def _paint(output: str) -> Text:
    """Return an output with the results of checks and stages in color."""
    text = Text(output)
    text.highlight_words(["fits", "succeeded", "RUNNING"], "green")
    text.highlight_words(["DOES NOT FIT", "failed"], "red")
    return text


def find_report(shown: str) -> str:
    """Return the URI of the report in the output of `trainyard run show`."""
    return next(line.split()[-1] for line in shown.splitlines() if line.startswith("report "))


def photograph(page: bytes) -> None:
    """Write the picture of a page."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "page.html")
        file.write_bytes(page)
        options = webdriver.ChromeOptions()
        for option in ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={PICTURE_SIZE}"):
            options.add_argument(option)
        driver = webdriver.Chrome(options, webdriver.ChromeService("/usr/bin/chromedriver"))
        try:
            driver.get(file.as_uri())
            WebDriverWait(driver, DRAWING_SECONDS).until(has_drawn)
            driver.save_screenshot(str(PICTURE))
        finally:
            driver.quit()


def has_drawn(driver: webdriver.Chrome) -> bool:
    """Return whether every chart in the window is there; the others are drawn when they are scrolled to."""
    height = driver.execute_script("return window.innerHeight")
    charts = [chart for chart in driver.find_elements(By.CSS_SELECTOR, ".chart") if chart.location["y"] < height]
    return bool(charts) and all(chart.find_elements(By.CSS_SELECTOR, "canvas, svg") for chart in charts)


def main() -> int:
    """Run the commands, and write both pictures."""
    FILE.write_text(draw([(command, run(command)) for command in COMMANDS]))
    photograph(storage.read(find_report(run("trainyard run show digits"))))
    print(FILE, PICTURE, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
