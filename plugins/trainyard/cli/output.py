"""How a command prints what it has found: as a table for people, or as JSON or YAML for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from trainyard.schemas.document import name_non_finite
from trainyard.text import table

NOT_PRODUCTS = ("environments", "owners", "runs")
"""The directories of a storage root in which there is no dataset and no model."""


def add_output(command: Any) -> None:
    """Add the option `--output` to a command."""
    command.add_argument(
        "-o", "--output", choices=("table", "json", "yaml"), default="table", help="how to print (default table)"
    )


def show(chosen: argparse.Namespace, value: Any, describe: Callable[[], str]) -> None:
    """Print a value as the option `--output` says.

    Args:
        chosen: The arguments of the command.
        value: What programs read: values of JSON, dataclasses and pydantic models.
        describe: Returns the text for people.
    """
    if chosen.output == "table":
        print(describe())
        return
    content = name_non_finite(to_jsonable_python(value))
    if chosen.output == "json":
        print(json.dumps(content, indent=1))
        return
    import yaml  # type: ignore[import-untyped]

    print(yaml.safe_dump(content, sort_keys=False, allow_unicode=True), end="")


def show_rows(chosen: argparse.Namespace, rows: Sequence[Mapping[str, Any]], empty: str) -> None:
    """Print rows with the same keys, which are the head of the table.

    Args:
        chosen: The arguments of the command.
        rows: The rows.
        empty: What people read if there are none.
    """

    def describe() -> str:
        return table(list(rows[0]), [list(map(_describe, row.values())) for row in rows]) if rows else empty

    show(chosen, rows, describe)


def show_unreadable(unreadable: Mapping[str, str]) -> int:
    """Print why some documents cannot be read, beside the error messages; return 1 if there are any."""
    for name, why in unreadable.items():
        print(f"cannot be read: {name}: {why}", file=sys.stderr)
    return 1 if unreadable else 0


def report(chosen: argparse.Namespace, line: str) -> None:
    """Print a line about what a command does; beside the error messages, if programs read the output."""
    print(line, file=sys.stdout if vars(chosen).get("output", "table") == "table" else sys.stderr, flush=True)


def _describe(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else ""
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.4g}"
        case Mapping():
            return ", ".join(f"{name} {_describe(part)}" for name, part in value.items())
    return str(value)
