"""What a diagnosis is."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory


@dataclass(frozen=True)
class Diagnosis:
    """What happened, in a sentence or two; what a next try needs in memory, where that is what was lacking."""

    sentence: str
    memory: Memory | None = None
    driver_memory: Memory | None = None


Rule = Callable[[re.Match[str], Plan], Diagnosis]
