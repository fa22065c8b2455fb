"""Collect what the runs of a pipeline produced: metrics from run to run, versions of datasets, and the champion."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.errors import noted
from trainyard.files import uris
from trainyard.report import curves
from trainyard.report.curves import Chart, Series
from trainyard.report.formats import abbreviate_run
from trainyard.report.scores import list_metrics
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets import manifest
from trainyard.schemas.promotion import Promotion
from trainyard.schemas.results import DatasetResult, PredictionsResult, PromotionResult
from trainyard.schemas.runs.run_record import RunRecord


@dataclass(frozen=True)
class Figure:
    """One metric of a task, or of a model that it evaluated: the value in each run that has it, oldest first, by id."""

    task: str
    name: str
    values: dict[str, float]

    @property
    def title(self) -> str:
        """The name for readers."""
        return f"{self.task}: {curves.humanize(self.name)}"

    @property
    def changes(self) -> bool:
        """Whether the value differs between runs, so that a chart shows something."""
        return len(set(self.values.values())) > 1

    @property
    def chart(self) -> Chart:
        """The values as a line."""
        series = Series(curves.humanize(self.name), "train", tuple(self.values.values()))
        return Chart(self.title, tuple(map(abbreviate_run, self.values)), (series,), axis="run")


@dataclass(frozen=True)
class Dataset:
    """A dataset that runs wrote: its existing versions, and run id -> (version, rows)."""

    uri: str
    versions: Sequence[int]
    by_run: dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Champion:
    """The promoted model at `uri`, and why it was promoted."""

    uri: str
    weights: str
    promotion: Promotion


def collect_figures(runs: Sequence[tuple[str, Sequence[RunRecord]]]) -> list[Figure]:
    """Return every numeric metric of runs (id, records), oldest first; those of evaluations come first."""
    values: dict[tuple[bool, str, str], dict[str, float]] = {}
    for run_id, scored in ((run_id, one) for run_id, records in runs for r in records for one in list_metrics(r)):
        for name, value in scored.metrics.items():
            if value is not None and math.isfinite(value):
                values.setdefault((not scored.is_evaluation, scored.title, name), {})[run_id] = value
    ordered = sorted(values.items(), key=lambda item: item[0][:2])
    return [Figure(task, name, by_run) for (_, task, name), by_run in ordered]


def collect_datasets(
    root: str, runs: Sequence[tuple[str, Sequence[RunRecord]]], unreadable: dict[str, str]
) -> list[Dataset]:
    """Return the datasets below `root` that these runs (id, records) wrote; note those that are `unreadable`."""
    by_dataset: dict[str, dict[str, tuple[int, int]]] = {}
    for run_id, records in runs:
        for written in (record.result for record in records if isinstance(record.result, DatasetResult)):
            if uris.is_below(root, written.uri):
                by_dataset.setdefault(written.uri, {})[run_id] = (written.version, written.rows)
    datasets = []
    for uri, by_run in by_dataset.items():
        with noted(unreadable, uri):
            datasets.append(Dataset(uri, manifest.list_versions(uri), by_run))
    return datasets


def collect_champions(root: str, records: Sequence[RunRecord], unreadable: dict[str, str]) -> list[Champion]:
    """Return the champions below `root` that these runs used as a baseline, predicted with, or decided about.

    Those that cannot be read are noted in `unreadable`.
    """
    results = [record.result for record in records if record.result]
    used = [result.model for result in results if isinstance(result, PredictionsResult)]
    evaluations = [one for result in results for one in result.evaluations_by_name.values()]
    baselines = [other.uri for one in evaluations for other in one.baselines]
    champions = []
    promoted = [result.uri for result in results if isinstance(result, PromotionResult)]
    for uri in dict.fromkeys([*used, *baselines, *promoted]):
        with noted(unreadable, uri):
            if uris.is_below(root, uri) and model_artifact.exists(uri):
                weights = model_artifact.read_current(uri).weights_sha256[:16]
                champions.append(Champion(uri, weights, Promotion.load(uris.join(uri, weights, "promotion.json"))))
    return champions
