"""Find the cause of a failure in the texts of YARN and Spark."""

from __future__ import annotations

from trainyard.diagnosis.diagnosis import Diagnosis
from trainyard.diagnosis.rules import RULES
from trainyard.planning.plan import Plan


def diagnose(plan: Plan, *texts: str) -> Diagnosis | None:
    """What `texts` tell of the failure of `plan`'s application, the first of them first; None when nothing known."""
    for text in texts:
        for pattern, rule in RULES:
            if found := pattern.search(text):
                return rule(found, plan)
    return None
