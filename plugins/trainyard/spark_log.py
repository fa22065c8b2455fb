"""Filter Spark's output for the task log."""

from __future__ import annotations

import re
from collections import deque
from typing import Literal

_RECORD = re.compile(r"^\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?P<level>[A-Z]+) ")
_FRAME = re.compile(r"^\s+at [\w.$<>/]+\(|^\s*\.\.\. \d+ (?:common frames omitted|more)$")
_THROWABLE = re.compile(r"^(?:Caused by: )?(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:Exception|Error)\b")
_CONTINUATION = re.compile(r"^Output: .+#\d+L?$|^\s+[a-z][a-z0-9+.-]*:/\S*$")
_RULE = re.compile(r"^={20,}$")
_NOISE = re.compile(
    r"^(?:WARNING: (?:Using incubator modules|package |A |Use |Please |An illegal|All illegal|Unknown module)"
    r"|Using Spark's default log4j|Using Spark's repl log4j|Setting default log level|To adjust logging level"
    r"|\s+(?:client token|diagnostics|ApplicationMaster (?:host|RPC port)|queue|start time): "
    r"|\s+(?:final status|tracking URL|user): "
    r"|SLF4J|Picked up |\[Stage \d+:|TRAINYARD FAILED:|Driver stacktrace:$|\s*$)"
)
_QUIET = frozenset({"TRACE", "DEBUG", "INFO", "WARN"})


class SparkLog:
    """Filter the lines of one application, in their order.

    It drops Spark's records below ERROR, JVM stack frames, the throwable, the columns or the paths that are printed
    beneath a record, and the lists that an application master prints between two rules. It keeps everything else: the
    job's own output above all.
    """

    def __init__(self, max_last: int = 5) -> None:
        self._last: deque[str] = deque(maxlen=max_last)
        self._beneath: Literal["record", "throwable", "frames", "list"] | None = None

    def keep(self, line: str) -> bool:
        """Return whether `line` belongs in the task log."""
        keep = self._filter(line)
        if keep:
            self._last.append(line)
        return keep

    @property
    def last(self) -> tuple[str, ...]:
        """The newest lines that passed the filter."""
        return tuple(self._last)

    def _filter(self, line: str) -> bool:
        if record := _RECORD.match(line):
            self._beneath = "throwable" if "Traceback (most recent call last):" in line else "record"
            return record["level"] not in _QUIET
        if _RULE.match(line) and self._beneath in ("record", "list"):
            self._beneath = "list" if self._beneath == "record" else None
            return False
        if self._beneath == "list":
            return False
        if self._beneath == "record" and _CONTINUATION.match(line):
            return False
        if _FRAME.match(line):
            self._beneath = "frames" if self._beneath else None
            return False
        if self._beneath == "throwable" or (self._beneath and _THROWABLE.match(line)):
            self._beneath = "throwable"
            return False
        self._beneath = None
        return not _NOISE.match(line)
