"""Evaluate models on a DataFrame: all metrics of all models in one pass."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import from_arrow_schema

from trainyard.errors import TrainyardError
from trainyard.etl.evaluation.scorer import STATE, EvaluatedModel, Scorer, examples_of, merge_states, sums_of
from trainyard.etl.metrics.ranking import Ranking
from trainyard.etl.metrics.scores import ModelMetrics
from trainyard.etl.metrics.sums import check_slices, merged
from trainyard.etl.scoring import inputs as scoring
from trainyard.schemas.evaluation import Baseline, Example, Scores
from trainyard.schemas.manifest import Column

_FEW_PARTS = 64


@dataclass(frozen=True)
class Evaluated:
    """What models made of the same rows: the first of them, and the others beside it."""

    model: Scores
    baselines: tuple[Baseline, ...]
    rows: int
    curves: dict[str, list[list[float]]]
    examples: tuple[Example, ...]


def evaluate(
    frame: DataFrame,
    models: Sequence[str],
    metrics: Sequence[str],
    *,
    slices: Sequence[str] = (),
    query: str | None = None,
    examples: int = 0,
    confidence: float = 0.95,
    rows_per_batch: int | None = None,
    parts: int = 1,
) -> Evaluated:
    """The metrics called `metrics` of the models at `models` over a DataFrame with their inputs and label.

    Beside those of all rows there are those of each value of the columns `slices`; rows of one `query` are ranked
    together; `examples` rows on which the first model does worst are shown. `parts` is about how many
    partitions there are. Raises TrainyardError.
    """
    evaluated = [EvaluatedModel.load(uri, metrics) for uri in models]
    label = _common_label(evaluated)
    also = [label.name, *slices, *([query] if query else [])]
    for model in evaluated:
        scoring.check_inputs(frame.schema, model.artifact, "what is evaluated", also)
    if query is None and any(isinstance(family, Ranking) for family in evaluated[0].families):
        raise TrainyardError(
            "metrics of ranking need query=, the column whose rows with one value are ranked together."
        )
    told = [f.name for f in frame.schema.fields if not _is_long(f.dataType)] if examples else []
    inputs = [column.name for model in evaluated for column in model.artifact.inputs]
    scorer = Scorer(tuple(evaluated), label, tuple(slices), query, examples, tuple(told), rows_per_batch)
    chosen = frame.select(*dict.fromkeys([*inputs, *also, *told]))
    if query:
        chosen = chosen.repartition(query).sortWithinPartitions(query)
    tables = chosen.mapInArrow(scorer.score, from_arrow_schema(STATE))
    if parts > _FEW_PARTS:
        tables = tables.repartition(int(parts**0.5)).mapInArrow(merge_states, from_arrow_schema(STATE))
    return _collect(tables.toArrow().cast(STATE).to_batches(), evaluated, examples, confidence)


def _collect(
    states: Sequence[pa.RecordBatch], models: Sequence[EvaluatedModel], examples: int, confidence: float
) -> Evaluated:
    sums = merged(map(sums_of, states))
    count = len({key.slice for key in sums})
    if not count:
        raise TrainyardError("there are no rows to evaluate on.")
    check_slices(count - 1)
    metrics = [ModelMetrics(sums, number, model.families, confidence) for number, model in enumerate(models)]
    scores = [model.scores(own) for model, own in zip(models, metrics, strict=True)]
    first = metrics[0]
    baselines = [
        Baseline(**vars(score), differences=first.above(own)) for score, own in zip(scores, metrics, strict=True)
    ]
    told = [Example(**json.loads(text)) for state in states for text in examples_of(state)]
    worst = heapq.nlargest(examples, told, key=lambda example: example.loss)
    return Evaluated(scores[0], tuple(baselines[1:]), first.rows, first.curves, tuple(worst))


def _is_long(kind: spark_types.DataType) -> bool:
    nested = spark_types.ArrayType | spark_types.MapType | spark_types.StructType
    return isinstance(kind, nested | spark_types.BinaryType)


def _common_label(models: Sequence[EvaluatedModel]) -> Column:
    labels = [model.artifact.label for model in models]
    first = labels[0]
    assert first is not None
    for model, label in zip(models, labels, strict=True):
        if label is None or (label.name, label.shape) != (first.name, first.shape):
            raise TrainyardError(
                f"models to compare must tell the same label: that of {models[0].uri} is {first.name!r}, that of "
                f"{model.uri} is {label.name if label else None!r}."
            )
    return first
