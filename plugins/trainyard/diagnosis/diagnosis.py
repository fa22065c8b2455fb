"""The data model of a diagnosis."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory


@dataclass(frozen=True)
class Diagnosis:
    """The cause of a failure and the fix in a sentence or two, and the memory for a retry, where that is the fix."""

    sentence: str
    memory: Memory | None = None
    driver_memory: Memory | None = None


Rule = Callable[[re.Match[str], Plan], Diagnosis]
