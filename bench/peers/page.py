"""Render the tables of `docs/explanation/comparison.md` from the results."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bench.peers.results import Result
from bench.peers.systems import ROOT, SYSTEMS, SYSTEMS_ON_YARN, YARN, System
from bench.peers.trial import KILL_AT_STEP, Trial

FILE = ROOT / "docs" / "explanation" / "comparison.md"
BEGIN, END = "<!-- tables: written by `make compare` -->", "<!-- end of tables -->"
NONE = "-"


def write(results: Mapping[str, Result]) -> None:
    """Replace the tables of the page."""
    FILE.write_text(replace_tables(FILE.read_text(), render_tables(results)))


def replace_tables(page: str, tables: str) -> str:
    """Return the page with these tables between its markers."""
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables}\n{END}{rest.split(END)[1]}"


def render_tables(results: Mapping[str, Result]) -> str:
    """Return all tables as Markdown."""
    local = _render_sections(LOCAL_SECTIONS, SYSTEMS, results)
    yarn = _render_sections(YARN_SECTIONS, SYSTEMS_ON_YARN, results)
    return "\n".join([*local, *(["## On YARN\n", *yarn] if yarn else [])])


def _render_sections(sections: Sequence[Section], known: Sequence[System], results: Mapping[str, Result]) -> list[str]:
    systems = [system for system in known if system.name in results]
    if not systems:
        return []
    texts = []
    for heading, columns, scenario in sections:
        rows = [
            [system.title, *(render(result, result.trials[scenario]) for _, render in columns)]
            for system in systems
            if scenario in (result := results[system.name]).trials
        ]
        texts.append(f"{heading}\n\n{render_table(['system', *(name for name, _ in columns)], rows)}")
    hashes = sections[0][0].split()[0]
    place = " on YARN" if systems[0].place == YARN else ""
    return [*texts, f"{hashes} Versions and commands{place}\n\n{_render_versions(systems, results)}"]


def render_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def describe_median(values: Sequence[float | None], digits: int = 0) -> str:
    """Return the median of the values that exist, with their range where there are several."""
    numbers = [value for value in values if value is not None]
    if not numbers:
        return NONE
    middle = f"{statistics.median(numbers):,.{digits}f}"
    return middle if len(numbers) == 1 else f"{middle} ({min(numbers):,.{digits}f} to {max(numbers):,.{digits}f})"


def describe_end(trial: Trial) -> str:
    """Return how a run ended."""
    if trial.status is None:
        return f"ended by the runner after {trial.seconds / 60:.0f} minutes"
    error = trial.error.replace("|", "\\|").replace("`", "'")
    return "finished" if trial.status == 0 else f"failed: `{error}`" if error else "failed"


def describe_left(trial: Trial) -> str:
    """Return the number of processes that are left."""
    names = sorted(set(trial.left))
    return f"{len(trial.left)}: {', '.join(names)}" if names else "0"


def describe_following(trial: Trial) -> str:
    """Return how the command ended that followed a killed one."""
    following = trial.following
    if following is None:
        return NONE
    return describe_end(replace(trial, status=following.status, seconds=following.seconds, error=following.error))


Column = tuple[str, Callable[[Result, Sequence[Trial]], str]]
Section = tuple[str, Sequence[Column], str]
"""A heading, the columns below it, and the scenario."""
SPEED: Sequence[Column] = (
    ("lines", lambda result, _: str(result.lines)),
    ("first step, s", lambda _, trials: describe_median([trial.first_step for trial in trials])),
    ("last epoch, rows/s", lambda _, trials: describe_median([trial.rows_per_second for trial in trials])),
    ("runs to the end", lambda _, trials: f"{sum(trial.status == 0 for trial in trials)} of {len(trials)}"),
    ("whole pipeline, s", lambda _, trials: describe_median([t.seconds for t in trials if t.status == 0])),
    ("accuracy", lambda _, trials: describe_median([trial.accuracy for trial in trials], 3)),
    ("load", lambda _, trials: describe_median([trial.load for trial in trials])),
)
WORKER: Sequence[Column] = (
    ("runs to the end", lambda _, trials: f"{sum(trial.status == 0 for trial in trials)} of {len(trials)}"),
    ("next step after, s", lambda _, trials: describe_median([trial.next_step for trial in trials])),
    ("repeated steps", lambda _, trials: describe_median([t.repeated_steps for t in trials if t.status == 0])),
    ("whole pipeline, s", lambda _, trials: describe_median([t.seconds for t in trials if t.status == 0])),
    ("error", lambda _, trials: next((describe_end(trial) for trial in trials if trial.status != 0), NONE)),
    ("load", lambda _, trials: describe_median([trial.load for trial in trials])),
)
ORCHESTRATOR: Sequence[Column] = (
    ("processes left after 15 s", lambda _, trials: describe_left(trials[-1])),
    ("steps after the kill", lambda _, trials: f"{max(0, trials[-1].steps - KILL_AT_STEP):,}"),
    ("still training then", lambda _, trials: "yes" if trials[-1].still_training else "no"),
    ("load", lambda _, trials: describe_median([trial.load for trial in trials])),
)
LABEL: Sequence[Column] = (
    ("run", lambda _, trials: describe_end(trials[-1])),
    ("after, s", lambda _, trials: describe_median([trial.seconds for trial in trials])),
    ("steps before", lambda _, trials: str(trials[-1].steps)),
    ("load", lambda _, trials: describe_median([trial.load for trial in trials])),
)
FOLLOWING: Sequence[Column] = (
    ("applications left after 15 s", lambda _, trials: describe_left(trials[-1])),
    ("next command", lambda _, trials: describe_following(trials[-1])),
    ("after, s", lambda _, trials: describe_median([t.following.seconds for t in trials if t.following])),
    ("trainings", lambda _, trials: describe_median([t.following.groups for t in trials if t.following])),
    ("at the same time", lambda _, trials: describe_median([t.following.at_once for t in trials if t.following])),
    ("repeated steps", lambda _, trials: f"{trials[-1].repeated_steps:,}"),
    ("load", lambda _, trials: describe_median([trial.load for trial in trials])),
)
REFUSED: Sequence[Column] = (
    LABEL[0],
    ("first attempt failed after, s", lambda _, trials: describe_median([trial.first_failure for trial in trials])),
    ("run failed after, s", LABEL[1][1]),
    LABEL[2],
    ("applications left after 15 s", lambda _, trials: describe_left(trials[-1])),
    LABEL[-1],
)
LOCAL_SECTIONS: Sequence[Section] = (
    ("## Speed", SPEED, "run"),
    ("## Killed worker", WORKER, "worker"),
    ("## Killed orchestrator", ORCHESTRATOR, "orchestrator"),
    ("## Wrong label", LABEL, "label"),
    ("## Two million rows", SPEED[1:], "table"),
)
YARN_SECTIONS: Sequence[Section] = (
    ("### Speed on YARN", SPEED, "run"),
    ("### Killed worker on YARN", WORKER, "worker"),
    ("### Next attempt after a killed orchestrator", FOLLOWING, "orchestrator"),
    ("### Same command after a killed orchestrator", FOLLOWING, "again"),
    ("### Misspelled node label", REFUSED, "node-label"),
    ("### Too little memory", REFUSED, "memory"),
)


def _render_versions(systems: Sequence[System], results: Mapping[str, Result]) -> str:
    rows = []
    for system in systems:
        result = results[system.name]
        versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
        dates = sorted(trial.date[:10] for trials in result.trials.values() for trial in trials)
        name, _, _ = system.documentation.partition("#")
        source = f"[documentation]({name})" if name.startswith("https") else "this documentation"
        rows.append([system.title, versions, f"`{result.command}`", source, dates[-1]])
    return render_table(["system", "versions", "command", "follows", "date"], rows)
