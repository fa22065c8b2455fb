"""The stored results: what each system did in each scenario."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.peers import lines
from bench.peers.systems import System
from bench.peers.trial import Following, Trial

FILE = Path(__file__).parent / "results.json"
OPTIONAL = ("following", "first_failure")


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
    trials = {scenario: [_build_trial(values) for values in group] for scenario, group in entry["trials"].items()}
    return Result(entry["lines"], entry["versions"], entry["command"], trials)


def _build_trial(values: dict[str, Any]) -> Trial:
    following = values.get("following")
    return Trial(
        **{**values, "left": tuple(values["left"]), "following": Following(**following) if following else None}
    )


def dump(results: dict[str, Result]) -> str:
    """Return results as JSON; a trial has only those of the `OPTIONAL` fields that it has values of."""
    entries = {name: asdict(result) for name, result in sorted(results.items())}
    for entry in entries.values():
        for trial in (trial for trials in entry["trials"].values() for trial in trials):
            for name in OPTIONAL:
                if trial[name] is None:
                    del trial[name]
    return json.dumps(entries, indent=2) + "\n"


def record(system: System, scenario: str, trials: list[Trial], versions: dict[str, str]) -> None:
    """Store the trials of a system in a scenario; those of its other scenarios are kept."""
    stored = load()
    others = stored[system.name].trials if system.name in stored else {}
    counted = sum(lines.count(file.read_text()) for file in system.files)
    result = Result(counted, versions, " ".join(system.program), {**others, scenario: trials})
    FILE.write_text(dump({**stored, system.name: result}))
