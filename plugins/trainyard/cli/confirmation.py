"""The options of commands that end or remove something: `--dry-run` and `--yes`. Without them a person is asked."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from trainyard.cli.output import report
from trainyard.errors import ArgumentError


def add_confirmation(command: Any) -> None:
    """Add the options `--dry-run` and `--yes` to a command."""
    choice = command.add_mutually_exclusive_group()
    choice.add_argument("--dry-run", action="store_true", help="print what the command would do, and do nothing")
    choice.add_argument("-y", "--yes", action="store_true", help="do not ask; required where nobody can answer")


def is_confirmed(chosen: argparse.Namespace, action: str) -> bool:
    """Return whether a command may do what it has printed.

    Args:
        chosen: The arguments of the command.
        action: What it does, such as "Remove 3 versions".

    Raises:
        ArgumentError: There is no `--yes`, and no terminal where a person could answer.
    """
    if chosen.dry_run:
        report(chosen, f"Dry run: nothing was done. {action} with --yes.")
        return False
    if chosen.yes:
        return True
    if not sys.stdin.isatty():
        raise ArgumentError(f"{action}? Nothing was done, because nobody can answer here; add --yes or --dry-run.")
    print(f"{action}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    report(chosen, "Nothing was done.")
    return False
