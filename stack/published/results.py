"""The result of a script: what its output has shown, or why it did not run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from stack.published.checks import examine
from stack.published.scripts import Script

LENGTH = 110
"""The number of characters of the line that shows a result."""


@dataclass(frozen=True)
class Result:
    """What came of a script.

    Attributes:
        commit: The commit of its repository.
        date: The day, such as 2026-11-24.
        status: "trains", "stops" by its own message, "failed" or "not run".
        seconds: How long its DAG ran.
        evidence: The last line of its output that shows the status.
        reason: Why it failed or did not run, in a line.
        versions: The versions of the packages that it ran with.
    """

    commit: str
    date: str
    status: str
    seconds: int = 0
    evidence: str = ""
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


def build_result(
    script: Script, date: str, exit_status: int, seconds: float, output: str, versions: Mapping[str, str]
) -> Result:
    """Return the result of a script that ran to its end.

    Args:
        script: The script.
        date: The day.
        exit_status: The exit status of its DAG.
        seconds: How long that ran.
        output: Its output.
        versions: The versions of the packages.
    """
    finding, commit = examine(script.check, output), script.repository.commit
    evidence = finding.evidence[:LENGTH]
    if not script.trains and not finding.problem:
        return Result(commit, date, "stops", round(seconds), evidence, versions=versions)
    reason = _find_error(output) if exit_status else finding.problem
    status = "failed" if exit_status or finding.problem else "trains"
    return Result(commit, date, status, round(seconds), evidence, reason, versions)


def _find_error(log: str) -> str:
    """Return the error of the task in a log, in a line; its last line, if there is no error."""
    errors = re.findall(r"^[\w.]*(?:Error|Exception): .+", log, re.MULTILINE)
    last = (errors or log.strip().splitlines() or ["no output"])[-1]
    return last.partition("AirflowException: ")[2] or last


def load(text: str) -> dict[str, Result]:
    """Return the results that `dump` wrote, by the name of the script."""
    return {name: Result(**entry) for name, entry in json.loads(text).items()}


def dump(results: Mapping[str, Result]) -> str:
    """Return results as JSON."""
    return json.dumps({name: asdict(results[name]) for name in sorted(results)}, indent=2) + "\n"
