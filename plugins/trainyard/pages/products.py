"""What the runs of a pipeline made: figures from run to run, versions of datasets, and the champion."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.report import curves
from trainyard.report.curves import Chart
from trainyard.report.render import EXPORTS
from trainyard.schemas import manifest, model_artifact
from trainyard.schemas.promotion import Promotion
from trainyard.schemas.run_record import RunRecord

SCORING = ("evaluate", "train")


@dataclass(frozen=True)
class Figure:
    """One metric of one task: its value in each run that has it, oldest first, by the run's id."""

    task: str
    name: str
    values: dict[str, float]

    @property
    def chart(self) -> Chart:
        """The values as a line."""
        return curves.chart(f"{self.task}: {self.name}", [self.name], [{self.name: v} for v in self.values.values()])


@dataclass(frozen=True)
class Dataset:
    """A dataset that runs wrote: the versions that are kept, and the version and rows of each run, by its id."""

    uri: str
    kept: Sequence[int]
    of_runs: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Champion:
    """The model in force at `uri`, and why."""

    uri: str
    weights: str
    promotion: Promotion


def figures(runs: Sequence[tuple[str, Sequence[RunRecord]]]) -> list[Figure]:
    """Every metric that is a number, of runs (id, records) that are given oldest first; of evaluations first."""
    found: dict[tuple[int, str, str], dict[str, float]] = {}
    for run_id, records in runs:
        for one in records:
            if one.job not in SCORING:
                continue
            for name, value in one.output.get("metrics", {}).items():
                if isinstance(value, int | float) and math.isfinite(value):
                    found.setdefault((SCORING.index(one.job), one.task_key.task, name), {})[run_id] = value
    ordered = sorted(found.items(), key=lambda item: item[0][:2])
    return [Figure(task, name, values) for (_, task, name), values in ordered]


def datasets(root: str, runs: Sequence[tuple[str, Sequence[RunRecord]]]) -> list[Dataset]:
    """The datasets below `root` that these runs (id, records) wrote."""
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for run_id, records in runs:
        for output in _outputs(records, EXPORTS):
            if below(root, output["uri"]):
                found.setdefault(output["uri"], {})[run_id] = (output["version"], output["rows"])
    return [Dataset(uri, manifest.list_versions(uri), of_runs) for uri, of_runs in found.items()]


def champions(root: str, records: Sequence[RunRecord]) -> list[Champion]:
    """Those below `root` that these runs evaluated against, or predicted with."""
    against = [other["uri"] for output in _outputs(records, ("evaluate",)) for other in output.get("baselines", ())]
    used = [output["model"] for output in _outputs(records, ("predict",))]
    found = []
    for uri in dict.fromkeys([*used, *against]):
        with suppress(TrainyardError, OSError):
            if below(root, uri) and model_artifact.exists(uri):
                weights = model_artifact.read_current(uri).weights_sha256[:16]
                found.append(Champion(uri, weights, Promotion.load(storage.join(uri, weights, "promotion.json"))))
    return found


def below(root: str, uri: str) -> bool:
    """Whether something lies below a storage root: pages read nothing else."""
    return uri.startswith(f"{root.rstrip('/')}/") and ".." not in uri.split("/")


def _outputs(records: Iterable[RunRecord], jobs: Sequence[str]) -> list[dict[str, Any]]:
    return [one.output for one in records if one.job in jobs and one.status == "succeeded"]
