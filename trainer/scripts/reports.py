"""Read what a script reports, which may be anything: each line is limited and checked."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainyard.trainer.scripts.reporting import MAX_BYTES

MAX_METRICS = 100
"""How many names of metrics a script may have; others are left out."""
MAX_NUMBER = 1 << 53
_READ_BYTES = 1 << 16
_MAX_CHUNKS = 16
"""How much is read at once, of a script that reports without a pause."""
_SHOWN = 80


@dataclass(frozen=True)
class Report:
    """What a script has reported at once.

    Attributes:
        epoch: The epoch, from 1; None if it has named none.
        step: The step; None if it has named none.
        metrics: The values of metrics, which may be infinite or NaN.
    """

    epoch: int | None = None
    step: int | None = None
    metrics: dict[str, float] = field(default_factory=dict)


def parse(line: bytes) -> Report:
    """Return the report of a line. Raises ValueError if it is none."""
    shown = repr(line[:_SHOWN].decode(errors="replace"))
    if len(line) >= MAX_BYTES:
        raise ValueError(f"a report has more than {MAX_BYTES} bytes: {shown}")
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError(f"a report is not JSON: {shown}") from None
    if not isinstance(fields, dict):
        raise ValueError(f"a report is not a JSON object: {shown}")
    counts = {name: fields.pop(name, None) for name in ("epoch", "step")}
    for name, count in counts.items():
        if count is not None and (type(count) is not int or not int(name == "epoch") <= count <= MAX_NUMBER):
            raise ValueError(f"a report has {name} {count!r}, which is no count: {shown}")
    for name, value in fields.items():
        if not name.strip() or not name.isprintable() or isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"a report has {name!r}: {value!r}, which is no metric: {shown}")
    return Report(counts["epoch"], counts["step"], {name: _to_float(value) for name, value in fields.items()})


class ReportReader:
    """Read the reports of one script, from the named pipe that it writes to; a context manager.

    Args:
        pipe: The pipe, which is created.
        metrics: The metrics that an earlier start of the script has reported.

    Attributes:
        metrics: The last value of each metric.
    """

    def __init__(self, pipe: Path, metrics: dict[str, float]) -> None:
        os.mkfifo(pipe, 0o600)
        # Open for writing too, so that the pipe has a reader at any time, and no end when a process closes it.
        self._descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        self._rest = b""
        self._has_warned = False
        self.metrics = dict(metrics)

    def __enter__(self) -> ReportReader:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self) -> Iterator[Report]:
        """Yield the reports that have arrived. The first line that is no report is named in the log."""
        for _ in range(_MAX_CHUNKS):
            if not (chunk := self._read_chunk()):
                return
            *lines, rest = (self._rest + chunk).split(b"\n")
            self._rest = rest[:MAX_BYTES]
            for line in filter(None, lines):
                try:
                    report = parse(line)
                except ValueError as error:
                    self._warn(f"{error}. Such lines are left out.")
                else:
                    yield self._keep(report)

    def _read_chunk(self) -> bytes:
        try:
            return os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return b""

    def _keep(self, report: Report) -> Report:
        """Return the report without metrics beyond the limit."""
        names = list(dict.fromkeys([*self.metrics, *report.metrics]))
        if len(names) > MAX_METRICS:
            self._warn(f"more than {MAX_METRICS} metrics are reported; {names[MAX_METRICS]!r} is left out.")
        metrics = {name: value for name, value in report.metrics.items() if name in names[:MAX_METRICS]}
        self.metrics |= metrics
        return Report(report.epoch, report.step, metrics)

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            print(text, flush=True)
        self._has_warned = True


def _to_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf
