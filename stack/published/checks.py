"""The checks of a script's own output: what it has to print, and which figure."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

WORKER_LINE = re.compile(r"\[rank\d+\]: (.*?)(?: +\[airflow\.task\S*\] loc=\S+)?$")
"""A line of a worker in the log of a task, as `airflow dags test` prints it."""
ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Check:
    """What the output of a script has to show.

    Attributes:
        pattern: A regular expression that some lines have. Its group, if it has one, is a number.
        lines: How many lines of all workers have to match; 0 for any number. It shows that workers share their rows,
            or that one of them alone reports.
        min_last: The smallest number in the last line.
        max_last: The largest number in the last line.
        has_fallen: Whether the number in the last line has to be smaller than that in the first one.
    """

    pattern: str
    lines: int = 0
    min_last: float = -math.inf
    max_last: float = math.inf
    has_fallen: bool = False


@dataclass(frozen=True)
class Finding:
    """What a check has found.

    Attributes:
        evidence: The last line that matched, from there on.
        problem: What is wrong with the output, an empty string if nothing is.
    """

    evidence: str
    problem: str = ""


def examine(check: Check, log: str) -> Finding:
    """Return what a check finds in the lines of the workers in the log of a task."""
    lines = [ESCAPES.sub("", line[1]) for text in log.splitlines() if (line := WORKER_LINE.search(text))]
    matches = [match for line in lines if (match := re.search(check.pattern, line))]
    if not matches or len(matches) != (check.lines or len(matches)):
        return Finding("", f"{len(matches)} lines match {check.pattern}, not {check.lines or 'one or more'}")
    evidence = " ".join(matches[-1].string[matches[-1].start() :].split())
    return Finding(evidence, _judge(check, [float(match[1]) for match in matches if match.groups()]))


def _judge(check: Check, numbers: Sequence[float]) -> str:
    """Return what is wrong with the numbers of the matching lines, an empty string if nothing is."""
    if not numbers:
        return ""
    first, last = numbers[0], numbers[-1]
    if not math.isfinite(last) or last < check.min_last or last > check.max_last:
        return f"{last:g} is not from {check.min_last:g} to {check.max_last:g}"
    if check.has_fallen and not last < first:
        return f"{last:g} is not less than {first:g}, the first number"
    return ""
