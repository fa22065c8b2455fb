"""Collect the models that the runs of a pipeline have trained, with what differs between them and their metrics."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from trainyard.pages.runs import Run
from trainyard.report import render, scores, settings
from trainyard.schemas.results import EvaluationResult, EvaluationsResult, ModelResult
from trainyard.schemas.runs import outcomes
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.train import TrainSpec

MAX_RUNS = 500
"""The runs of the page: the newest. Documents of finished runs stay in memory."""
_THREADS = 16


@dataclass(frozen=True)
class Model:
    """A model that a task has trained.

    Attributes:
        run: The run.
        task: The task.
        weights: The first digits of the sha256 of its weights.
        settings: What a person may vary, by name.
        metrics: Its metrics by name: those of the best epoch, and of evaluations with the split in front.
        seconds: How long the training took.
    """

    run: Run
    task: str
    weights: str
    settings: Mapping[str, str]
    metrics: Mapping[str, float]
    seconds: float


@dataclass(frozen=True)
class Table:
    """Models, and the columns in which they differ.

    Attributes:
        models: The models, newest first.
        settings: The names of settings whose values are not the same for all.
        metrics: The names of metrics.
        best: The best value of each metric whose direction is known.
    """

    models: Sequence[Model]
    settings: Sequence[str] = ()
    metrics: Sequence[str] = ()
    best: Mapping[str, float] = field(default_factory=dict)


def read_models(root: str, runs: Sequence[Run], unreadable: dict[str, str]) -> list[Model]:
    """Return the models of runs, in their order.

    Args:
        root: The storage root, without which names of datasets and models are shown.
        runs: The runs.
        unreadable: Where to note why a document cannot be read.
    """

    def read(run: Run) -> list[Model]:
        records = outcomes.read_run(run.directory, unreadable)
        return build_models(root, run, records, render.read_specs(run.directory, records, unreadable))

    with ThreadPoolExecutor(_THREADS) as pool:
        return [model for of_run in pool.map(read, runs) for model in of_run]


def build_models(root: str, run: Run, records: Sequence[RunRecord], specs: Mapping[str, TrainSpec]) -> list[Model]:
    """Return the models that the tasks of a run have trained. A pure function of its records and specs."""
    evaluations: dict[str, list[tuple[str, EvaluationResult]]] = {}
    for record in records:
        if isinstance(record.result, EvaluationResult | EvaluationsResult):
            for evaluation in record.result.evaluations_by_name.values():
                evaluations.setdefault(evaluation.weights_sha256, []).append((record.task_key.task, evaluation))
    models = []
    for record in records:
        if isinstance(record.result, ModelResult):
            task, result = record.task_key.task, record.result
            found = dict(_list_finite(result.metrics.items()))
            of_model = evaluations.get(result.weights_sha256, [])
            splits = Counter(evaluation.split for _, evaluation in of_model)
            for name, evaluation in of_model:
                where = evaluation.split if splits[evaluation.split] == 1 else f"{name}: {evaluation.split}"
                found |= _list_finite((f"{where} {metric}", value) for metric, value in evaluation.metrics.items())
            varied = settings.flatten(root, specs[task], result) if task in specs else {}
            models.append(Model(run, task, result.weights_sha256[:16], varied, found, record.seconds))
    return models


def build_table(models: Sequence[Model]) -> Table:
    """Return the columns of models: the settings that differ, and all metrics."""
    names = dict.fromkeys(name for model in models for name in model.metrics)
    best = {}
    for name in names:
        values = [model.metrics[name] for model in models if name in model.metrics]
        if (direction := scores.find_direction(name)) and len(set(values)) > 1:
            best[name] = max(values) if direction > 0 else min(values)
    return Table(models, settings.find_different([model.settings for model in models]), list(names), best)


def _list_finite(values: Iterable[tuple[str, float | None]]) -> list[tuple[str, float]]:
    return [(name, value) for name, value in values if value is not None and math.isfinite(value)]
