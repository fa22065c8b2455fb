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


def sentence(text: str) -> Rule:
    """Return a rule that formats `text` with the groups of the match and the plan."""

    def rule(match: re.Match[str], plan: Plan) -> Diagnosis:
        return Diagnosis(text.format(**match.groupdict(), plan=plan))

    return rule
