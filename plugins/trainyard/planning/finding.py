"""What a check of a plan against a cluster finds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from trainyard.text import table


@dataclass(frozen=True)
class Finding:
    """One need of a stage, and what the cluster has.

    Attributes:
        stage: The stage.
        subject: What was checked.
        needed: What the stage needs.
        found: What the cluster has.
        problem: How to fix what is refused, "" if it is not.
        warning: What may prevent the stage from running, or could not be checked.
    """

    stage: str
    subject: str
    needed: str
    found: str
    problem: str = ""
    warning: str = ""

    @property
    def state(self) -> str:
        """The result of the check in two or three words."""
        return "DOES NOT FIT" if self.problem else "MAY NOT FIT" if self.warning else "fits"

    def as_warning(self) -> Finding:
        """Return the finding with its problem as a warning."""
        return replace(self, problem="", warning=self.warning or self.problem)


def as_text(findings: Iterable[Finding]) -> str:
    """Return a table of all findings, and each problem and warning in a sentence."""
    listed = list(findings)
    rows = [[f.stage, f.subject, f.needed, f.found, f.state] for f in listed]
    parts = [table(["stage", "check", "needs", "available", ""], rows)]
    parts += [finding.problem or finding.warning for finding in listed if finding.problem or finding.warning]
    return "\n\n".join(parts)
