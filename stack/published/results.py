"""The result of a script: what its output has shown, or why it did not run."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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
        arguments: Its command line.
        variables: Its environment variables.
    """

    commit: str
    date: str
    status: str
    seconds: int = 0
    evidence: str = ""
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    variables: Mapping[str, str] = field(default_factory=dict)

    def is_of(self, script: Script) -> bool:
        """Return whether the script would be run as it was, not at another commit or with other arguments."""
        was = (self.commit, tuple(self.arguments), dict(self.variables))
        return was == (script.repository.commit, tuple(script.arguments), dict(script.variables))


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
    finding = examine(script.check, output)
    status, reason = "trains", ""
    if not script.trains and not finding.problem:
        status = "stops"
    elif exit_status or finding.problem:
        status, reason = "failed", _find_error(output) if exit_status else finding.problem
    return Result(
        script.repository.commit, date, status, round(seconds), finding.evidence[:LENGTH], reason, versions,
        script.arguments, script.variables,
    )  # fmt: skip


def _find_error(log: str) -> str:
    """Return the error of the task in a log, in a line; its last line, if there is no error."""
    errors = re.findall(r"^[\w.]*(?:Error|Exception): .+", log, re.MULTILINE)
    last = (errors or log.strip().splitlines() or ["no output"])[-1]
    return last.partition("AirflowException: ")[2] or last


def load(text: str) -> dict[str, Result]:
    """Return the results that `dump` wrote, by the name of the script."""
    return {
        name: Result(**entry | {"arguments": tuple(entry["arguments"])}) for name, entry in json.loads(text).items()
    }


def dump(results: Mapping[str, Result]) -> str:
    """Return results as JSON."""
    return json.dumps({name: asdict(results[name]) for name in sorted(results)}, indent=2) + "\n"
