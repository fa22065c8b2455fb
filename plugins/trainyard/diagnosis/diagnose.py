"""Find the cause of a failure in the texts of YARN and Spark."""

from __future__ import annotations

from trainyard.diagnosis.diagnosis import Diagnosis
from trainyard.diagnosis.rules import EXIT_CODE_RULES, RULES
from trainyard.planning.plan import Plan


def diagnose(plan: Plan, *texts: str) -> Diagnosis | None:
    """Return the diagnosis of a failure of `plan`'s application.

    Args:
        plan: The plan of the application.
        texts: Texts of YARN and Spark, the most important first.

    Returns:
        The diagnosis of the first text with a recognized cause, else of the first with a recognized exit code; None
        when neither is recognized.
    """
    for rules in (RULES, EXIT_CODE_RULES):
        for text in texts:
            for pattern, rule in rules:
                if match := pattern.search(text):
                    return rule(match, plan)
    return None
