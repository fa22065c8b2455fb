"""The stored results: what each system did in each scenario."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.peers import lines
from bench.peers.systems import System
from bench.peers.trial import Trial

FILE = Path(__file__).parent / "results.json"


@dataclass(frozen=True)
class Result:
    """The results of a system.

    Attributes:
        lines: The lines of its job.
        versions: The versions of its packages.
        command: The command that runs the job, in its folder of `jobs/`.
        trials: The trials by scenario.
    """

    lines: int
    versions: dict[str, str]
    command: str
    trials: dict[str, list[Trial]] = field(default_factory=dict)


def load() -> dict[str, Result]:
    """Return the stored results by the name of the system."""
    return parse(FILE.read_text()) if FILE.exists() else {}


def parse(text: str) -> dict[str, Result]:
    """Return the results that `dump` wrote."""
    return {name: _build(entry) for name, entry in json.loads(text).items()}


def _build(entry: dict[str, Any]) -> Result:
    trials = {
        scenario: [Trial(**{**values, "left": tuple(values["left"])}) for values in group]
        for scenario, group in entry["trials"].items()
    }
    return Result(entry["lines"], entry["versions"], entry["command"], trials)


def dump(results: dict[str, Result]) -> str:
    """Return results as JSON."""
    return json.dumps({name: asdict(result) for name, result in sorted(results.items())}, indent=2) + "\n"


def record(system: System, scenario: str, trials: list[Trial], versions: dict[str, str]) -> None:
    """Store the trials of a system in a scenario; those of its other scenarios are kept."""
    stored = load()
    others = stored[system.name].trials if system.name in stored else {}
    counted = sum(lines.count(file.read_text()) for file in system.files)
    result = Result(counted, versions, " ".join(system.program), {**others, scenario: trials})
    FILE.write_text(dump({**stored, system.name: result}))
