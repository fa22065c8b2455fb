"""Evaluate models on a DataFrame: all metrics of all models in one pass over the rows."""

from __future__ import annotations

import heapq
import json
import pickle
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import from_arrow_schema

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import get_column
from trainyard.etl.evaluation import names
from trainyard.etl.evaluation.evaluated_model import EvaluatedModel, build_scores, compute_differences
from trainyard.etl.evaluation.states import STATE_SCHEMA, merge_states, read_examples, read_sums
from trainyard.etl.fitting import encoding
from trainyard.etl.metrics import classification, regression
from trainyard.etl.metrics.bins import SAMPLE_ROWS
from trainyard.etl.metrics.family import MetricFamily
from trainyard.etl.metrics.ranking import Ranking
from trainyard.etl.metrics.scores import ModelMetrics
from trainyard.etl.metrics.sums import RANGE_KEYS, check_slice_count, merge_sums
from trainyard.etl.scoring.inputs import check_inputs
from trainyard.etl.scoring.scan import Rows, get_session, map_batches, select
from trainyard.etl.scoring.worker_call import call_in_worker
from trainyard.schemas import model_artifact
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.evaluation import Baseline, Example, Scores
from trainyard.schemas.heads import ONLY

_Loaded = tuple[str, str, str, Column]
"""The URI of a model, the JSON of its `ModelArtifact`, a head, and its label."""


@dataclass(frozen=True)
class EvaluationResult:
    """The evaluation of models on the same rows.

    Attributes:
        model: The scores of the first model.
        baselines: The scores of the others, and how the first differs from them.
        rows: The number of rows.
        curves: The curves of the first model by name, each a list of points.
        examples: The rows on which the first model has the highest loss.
        classes: The names of the classes, in the order of their numbers; empty if they have none.
        head_classes: The same by head, of models with heads.
        warnings: A sentence if the first model is worse than always giving the most frequent class, or the mean label.
    """

    model: Scores
    baselines: tuple[Baseline, ...]
    rows: int
    curves: dict[str, list[list[float]]]
    examples: tuple[Example, ...]
    classes: tuple[str, ...]
    head_classes: dict[str, tuple[str, ...]]
    warnings: tuple[str, ...]


def evaluate(
    rows: Rows,
    models: Sequence[str] | str,
    metrics: Sequence[str] | str = (),
    *,
    slices: Sequence[str] = (),
    query: str | None = None,
    examples: int = 0,
    confidence: float = 0.95,
    rows_per_batch: int | None = None,
) -> EvaluationResult:
    """Evaluate models on rows that have the columns of their inputs and their label.

    Columns of categories, and a label whose classes have names, have their values, or the indices of a dataset that was
    fitted as that of the models was.

    Args:
        rows: A DataFrame, or a scan of a dataset.
        models: The URI of the model, or those of several. The first is compared with each of the others. `MODEL@1a2b`
            is the version whose weights have a sha256 that begins so.
        metrics: The name of the metric, or those of several; `module:function` for a function that returns a metric of
            torchmetrics. Those of a head are named `kind/accuracy`. By default those of the first model's recipe.
        slices: Columns; metrics are also computed for the rows of each of their values.
        query: The column whose rows with one value are ranked together. Required for metrics of ranking.
        examples: The number of rows with the highest loss to return.
        confidence: The confidence of intervals, between 0 and 1.
        rows_per_batch: The number of rows that a network is applied to at a time. By default it is measured.

    Returns:
        Metrics with intervals of each model, and the differences between the first and the others.

    Raises:
        TrainyardError: A column is missing or has another type than the model was trained on, a metric does not apply
            to a model, or there are no rows.
    """
    first, *others = [models] if isinstance(models, str) else models
    [result] = evaluate_each(
        rows, [first], others, [metrics] if isinstance(metrics, str) else metrics, slices=slices, query=query,
        examples=examples, confidence=confidence, rows_per_batch=rows_per_batch,
    )  # fmt: skip
    return result


def evaluate_each(
    rows: Rows,
    models: Sequence[str],
    baselines: Sequence[str],
    metrics: Sequence[str],
    *,
    slices: Sequence[str],
    query: str | None,
    examples: int,
    confidence: float,
    rows_per_batch: int | None,
) -> list[EvaluationResult]:
    """Evaluate several models on the same rows in one pass; return the evaluation of each, compared with all baselines.

    Args:
        rows: A DataFrame, or a scan of a dataset.
        models: The URIs of the models.
        baselines: The URIs of other models, of which a model may be one.
        metrics: The names of metrics; by default those of the first model's recipe.
        slices: See `evaluate`, also for what follows.
        query: The column that names queries.
        examples: The number of examples of each model.
        confidence: The confidence of intervals.
        rows_per_batch: The number of rows that a network is applied to at a time.

    Raises:
        TrainyardError: See `evaluate`.
    """
    uris = list(dict.fromkeys([*models, *baselines]))
    evaluated = _load(rows, uris, metrics)
    heads = len(evaluated) // len(uris)  # of each model, one after the other
    vocabularies = names.read_vocabularies(evaluated)
    labels = {model.head: model.label.name for model in evaluated}
    used = {*_list_inputs(evaluated), *labels.values()}
    of_models = {name: values for name, values in vocabularies.items() if name in used}
    nullable = {model.label.name for model in evaluated if model.label.nullable}
    rows = encoding.encode_rows(rows, of_models, "the rows to evaluate", nullable=nullable)
    slices = tuple(dict.fromkeys(slices))
    required = [*slices, *([query] if query else [])]
    for model in evaluated:
        check_inputs(rows.schema, model.artifact, "the rows to evaluate", required, model.label)
    _check_slices(rows.schema, slices)
    if query is None and any(isinstance(family, Ranking) for model in evaluated for family in model.families):
        raise TrainyardError(
            "metrics of ranking need query=, the column whose rows with one value are ranked together."
        )
    evaluated = _set_centers(rows, evaluated)
    if any(classification.needs_edges(model.families) for model in evaluated):
        evaluated = _set_edges(rows, evaluated, rows_per_batch)
    shown = [field.name for field in rows.schema.fields if not _is_large(field.dataType)] if examples else []
    inputs = _list_inputs(evaluated)
    score = partial(
        _score, models=tuple(evaluated), slices=slices, query=query, examples=examples, shown_columns=tuple(shown),
        rows_per_batch=rows_per_batch, examined=tuple(number * heads for number in range(len(models))),
    )  # fmt: skip
    columns = list(dict.fromkeys([*inputs, *labels.values(), *required, *shown]))
    if query:
        by_query = get_column(query)
        rows = select(rows, columns).repartition(by_query).sortWithinPartitions(by_query)
    schema = from_arrow_schema(STATE_SCHEMA)
    states = map_batches(rows, columns, score, schema).repartition(*RANGE_KEYS)
    merged = states.mapInArrow(partial(merge_states, examples=examples), schema)
    scored = _compute_metrics(merged.toArrow().cast(STATE_SCHEMA).to_batches(), evaluated, heads, examples, confidence)
    encoded, by_uri = encoding.select_encoded(rows.schema, vocabularies), dict(zip(uris, scored, strict=True))
    others = [by_uri[name] for name in baselines]
    return [_name_values(_build_result(by_uri[name], others), labels, encoded) for name in models]


def _name_values(
    result: EvaluationResult, labels: Mapping[str, str], vocabularies: names.Vocabularies
) -> EvaluationResult:
    """Return a result with the names of classes and categories; `labels` are those of the heads."""
    classes = {head: vocabularies[label].names for head, label in labels.items() if label in vocabularies}
    label = next(iter(labels.values()))
    return replace(
        result,
        model=names.name_slices(result.model, vocabularies),
        baselines=tuple(names.name_slices(baseline, vocabularies) for baseline in result.baselines),
        curves=names.name_curves(result.curves, classes),
        examples=tuple(names.name_example(example, label, vocabularies) for example in result.examples),
        classes=classes.pop(ONLY, ()),
        head_classes=classes,
    )


def _load(rows: Rows, models: Sequence[str], metrics: Sequence[str]) -> list[EvaluatedModel]:
    """Read the artifacts of models, and let a worker choose how to compute the metrics of each of their heads."""
    by_model: list[list[_Loaded]] = []
    for name in models:
        uri, artifact = model_artifact.find(name)
        if not artifact.labels:
            raise TrainyardError(f"the model {uri} was trained without a label, so its output cannot be evaluated.")
        document = artifact.to_json()
        by_model.append([(uri, document, head, label) for head, label in artifact.labels.items()])
    _check_labels(by_model)
    loaded = list(chain.from_iterable(by_model))
    families = call_in_worker(get_session(rows), partial(_choose_families, loaded, tuple(metrics)))
    return [EvaluatedModel(*model, chosen) for model, chosen in zip(loaded, families, strict=True)]


def _choose_families(models: Sequence[_Loaded], metrics: Sequence[str]) -> list[tuple[MetricFamily, ...]]:
    from trainyard.etl.evaluation.families import choose_families  # imports torch, as only workers do
    from trainyard.etl.scoring.worker_model import name_in_errors

    families = []
    for model in models:
        with name_in_errors(model[0]):
            families.append(choose_families(*model, metrics, first=models[0][:2]))
    return families


def _score(batches: Iterable[pa.RecordBatch], **options: Any) -> Iterator[pa.RecordBatch]:
    from trainyard.etl.evaluation.scorer import Scorer

    return Scorer(**options).score(batches)


def _set_edges(rows: Rows, models: Sequence[EvaluatedModel], rows_per_batch: int | None) -> list[EvaluatedModel]:
    """Return the models with bins of scores that suit their outputs for the first rows of a task that has some."""
    columns = list(dict.fromkeys(_list_inputs(models)))
    choose = partial(_choose_edges, models=tuple(models), rows_per_batch=rows_per_batch)
    chosen = map_batches(rows, columns, choose, spark_types.StructType().add("families", "binary")).limit(1).collect()
    families = pickle.loads(chosen[0].families) if chosen else [model.families for model in models]  # noqa: S301  our worker's
    return [replace(model, families=own) for model, own in zip(models, families, strict=True)]


def _choose_edges(
    batches: Iterable[pa.RecordBatch], models: tuple[EvaluatedModel, ...], rows_per_batch: int | None
) -> Iterator[pa.RecordBatch]:
    from trainyard.etl.evaluation.scorer import Scorer

    scorer = Scorer(models, slices=(), query=None, examples=0, shown_columns=(), rows_per_batch=rows_per_batch)
    for outputs in scorer.apply_to_first(batches, SAMPLE_ROWS):
        families = [classification.set_edges(m.families, output) for m, output in zip(models, outputs, strict=True)]
        yield pa.RecordBatch.from_pydict({"families": [pickle.dumps(families)]})


def _list_inputs(models: Sequence[EvaluatedModel]) -> list[str]:
    return [column.name for model in models for column in model.artifact.inputs]


@dataclass(frozen=True)
class _Scored:
    """A model with the metrics of each head, and the rows on which the first head has the highest loss."""

    model: EvaluatedModel
    heads: Sequence[ModelMetrics]
    examples: Sequence[Example]


def _compute_metrics(
    states: Sequence[pa.RecordBatch], models: Sequence[EvaluatedModel], heads: int, examples: int, confidence: float
) -> list[_Scored]:
    """Return the metrics and examples of each model, of which `models` has all `heads` one after the other."""
    sums = merge_sums(map(read_sums, states))
    slices = {key.slice for key in sums}
    if not slices:
        raise TrainyardError("there are no rows to evaluate; check the DataFrame or the split.")
    check_slice_count(len(slices) - 1)
    texts: dict[int, list[str]] = defaultdict(list)
    for state in states:
        for number, of_model in read_examples(state).items():
            texts[number] += of_model
    worst = {
        number: heapq.nlargest(examples, (Example(**json.loads(text)) for text in own), key=lambda one: one.loss)
        for number, own in texts.items()
    }
    metrics = [
        ModelMetrics(sums, number, model.families, confidence, model.head) for number, model in enumerate(models)
    ]
    return [_Scored(models[at], metrics[at : at + heads], worst.get(at, [])) for at in range(0, len(models), heads)]


def _build_result(scored: _Scored, others: Sequence[_Scored]) -> EvaluationResult:
    baselines = tuple(
        Baseline(
            **vars(build_scores(other.model, other.heads)), differences=compute_differences(scored.heads, other.heads)
        )
        for other in others
    )
    return EvaluationResult(
        model=build_scores(scored.model, scored.heads), baselines=baselines, rows=scored.heads[0].rows,
        curves={name: curve for head in scored.heads for name, curve in head.curves.items()},
        examples=tuple(scored.examples), classes=(), head_classes={},
        warnings=tuple(text for head in scored.heads for text in head.warnings),
    )  # fmt: skip


def _set_centers(rows: Rows, models: Sequence[EvaluatedModel]) -> list[EvaluatedModel]:
    """Return the models with the center of their labels, as far as metrics need it."""
    needed = {m.label.name: m.label for m in models if regression.needs_center(m.families)}
    labels = {name: _read_some_labels(rows, label) for name, label in needed.items()}
    return [
        replace(m, families=regression.center_labels(m.families, labels[m.label.name])) if m.label.name in labels else m
        for m in models
    ]


def _read_some_labels(rows: Rows, label: Column) -> NDArray[Any]:
    """Return the labels of the first rows that have one."""
    from trainyard.etl.scoring import arrays  # imports torch, here for models of regression

    frame = select(rows, [label.name])
    named = frame.where(get_column(label.name).isNotNull()) if label.nullable else frame
    batch = named.limit(regression.CENTER_ROWS).toArrow().combine_chunks()
    labels = arrays.to_array(batch.to_batches()[0], label) if batch.num_rows else np.empty((0, 1))
    assert isinstance(labels, np.ndarray)
    return labels


def _is_large(kind: spark_types.DataType) -> bool:
    """Return whether values are too large to be shown in an example."""
    nested = spark_types.ArrayType | spark_types.MapType | spark_types.StructType
    return isinstance(kind, nested | spark_types.BinaryType)


def _check_slices(schema: spark_types.StructType, slices: Sequence[str]) -> None:
    for name in slices:
        if _is_large(schema[name].dataType):
            raise TrainyardError(
                f"slices names the column {name!r} of type {schema[name].dataType.simpleString()}; name columns of "
                "numbers, strings, booleans, dates or timestamps."
            )


def _check_labels(models: Sequence[Sequence[_Loaded]]) -> None:
    """Check that models to compare have the same heads, and labels."""
    first, expected = models[0][0][0], _describe_labels(models[0])
    for heads in models:
        if (own := _describe_labels(heads)) != expected:
            raise TrainyardError(
                f"models to compare must have the same label, but that of {first} is {expected}, and that of "
                f"{heads[0][0]} is {own}."
            )


def _describe_labels(heads: Sequence[_Loaded]) -> str:
    described = [
        f"{label.name!r} of shape {list(label.shape)}{f' (head {head!r})' if head else ''}" for *_, head, label in heads
    ]
    return ", ".join(described)
