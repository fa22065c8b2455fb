"""The page of the results, docs/reference/compatibility.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stack.matrix.results import Result
from stack.matrix.rows import SECTIONS, Row

HEAD = """# Compatibility

`make test-all` runs all tests with the locked versions of `requirements.txt`. `make matrix` runs a part of them with
other versions, each in an environment of its own, and writes the results to this page:

```sh
make matrix                                    # every row, more than an hour on two cores
make matrix ROWS="hadoop-3.3.6 python-3.13"    # these rows; the results of the others are kept
```

A row that cannot run on a machine, for example without an interpreter of that version, is *not run*, with the reason.
"""


def render(rows: Sequence[Row], results: Mapping[str, Result]) -> str:
    """Return the text of the page, with the rows of each software in a table."""
    sections = [
        _render_section(software, text, [row for row in rows if row.software == software], results)
        for software, text in SECTIONS.items()
    ]
    return "\n".join([HEAD, *sections])


def _render_section(software: str, text: str, rows: Sequence[Row], results: Mapping[str, Result]) -> str:
    head = ["| version | result | minutes | date |", "| --- | --- | --- | --- |"]
    table = "\n".join([*head, *(_render_row(row, results.get(row.name)) for row in rows)])
    return "\n".join([f"## {software}\n", f"{text}\n", f"{table}\n", *_render_commands(rows, results)])


def _render_commands(rows: Sequence[Row], results: Mapping[str, Result]) -> list[str]:
    """Return a paragraph for each command that rows ran."""
    versions: dict[str, list[str]] = {}
    for row in rows:
        if (result := results.get(row.name)) and result.status != "not run":
            versions.setdefault(result.command, []).append(row.version)
    return [f"{', '.join(those)}: `{_escape(command)}`\n" for command, those in versions.items()]


def _render_row(row: Row, result: Result | None) -> str:
    if result is None:
        return f"| {row.version} | not run yet | - | - |"
    minutes = f"{result.seconds / 60:.1f}" if result.seconds else "-"
    return f"| {row.version} | {describe(result)} | {minutes} | {result.date} |"


def describe(result: Result) -> str:
    """Return a result in a line of Markdown."""
    skipped = f", skipped {result.skipped}" if result.skipped else ""
    reason = f": `{_escape(result.reason)}`" if result.reason else ""
    if result.status == "passed":
        return f"passed {result.passed}{skipped}"
    if result.status == "not run":
        return f"not run{reason}"
    total = result.passed + result.failed
    return f"**failed** {result.failed} of {total}{skipped}{reason}" if total else f"**failed**{reason}"


def _escape(text: str) -> str:
    """Return text that can be in a span of code in a table."""
    return text.replace("`", "'").replace("|", "\\|")
