"""The result of a row: what pytest reported, or why it did not run."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from xml.etree import ElementTree

LENGTH = 240
"""The number of characters of a reason."""


@dataclass(frozen=True)
class Counts:
    """The numbers of tests by outcome, and the most frequent failure."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Result:
    """What came of a row.

    Attributes:
        command: The command of the tests.
        date: The day, such as 2026-11-24.
        status: "passed", "failed" or "not run".
        seconds: How long the tests ran.
        passed: The number of tests that passed.
        failed: The number of tests that failed.
        skipped: The number of tests that were skipped.
        reason: Why the row failed or did not run, in a line.
    """

    command: str
    date: str
    status: str
    seconds: int = 0
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    reason: str = ""


def read_report(text: str) -> Counts:
    """Return the counts of a report that pytest wrote as JUnit XML."""
    cases = list(ElementTree.fromstring(text).iter("testcase"))  # noqa: S314 - our own file
    failures = {case: element for case in cases for element in case if element.tag in ("failure", "error")}
    skipped = sum(case.find("skipped") is not None for case in cases)
    reasons = Counter(_summarize_failure(element) for element in failures.values())
    reason = reasons.most_common(1)[0][0] if reasons else ""
    return Counts(len(cases) - len(failures) - skipped, len(failures), skipped, reason)


def build_result(command: str, date: str, seconds: int, exit_status: int, report: str, output: str) -> Result:
    """Return the result of tests that ran to their end.

    Args:
        command: The command of the tests.
        date: The day.
        seconds: How long they ran.
        exit_status: The exit status of the command.
        report: pytest's report as JUnit XML, an empty string if there is none.
        output: The output of the command.
    """
    counts = read_report(report) if report else Counts()
    passed = exit_status == 0 and counts.passed > 0 and counts.failed == 0
    reason = counts.reason or ("" if passed else summarize(output))
    status = "passed" if passed else "failed"
    return Result(command, date, status, seconds, counts.passed, counts.failed, counts.skipped, reason)


def summarize(output: str) -> str:
    """Return the last error of a command's output in a line; its last line, if there is no error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("E ").strip() for line in lines if line.startswith(("E ", "error:", "Error"))]
    return _shorten((errors or lines or ["no output"])[-1])


def _summarize_failure(element: ElementTree.Element) -> str:
    """Return the message of a failure in a line. The message of one in a collection is only in its traceback."""
    message = element.get("message") or ""
    if inner := re.findall(r"^\s*([\w.]+Error: .+)$", message.partition("Traceback")[2], re.MULTILINE):
        return _shorten(inner[-1])  # the error of a Python worker of Spark
    return summarize(element.text or "") if message in ("", "collection failure") else _shorten(message)


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LENGTH else f"{line[: LENGTH - 3]}..."


def load(text: str) -> dict[str, Result]:
    """Return the results that `dump` wrote, by the name of the row."""
    return {name: Result(**entry) for name, entry in json.loads(text).items()}


def dump(results: Mapping[str, Result]) -> str:
    """Return results as JSON."""
    return json.dumps({name: asdict(results[name]) for name in sorted(results)}, indent=2) + "\n"
