"""The evaluate job: all metrics of all models in one pass over a split, their sums merged across partitions."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import from_arrow_schema

from etl import arrow, batches, scoring
from etl.metrics import families
from etl.metrics.family import Family, Integers, Link, Scored, Task
from etl.metrics.ranking import Ranking
from etl.metrics.rows import Rows
from etl.metrics.scores import ALL, Standing
from etl.metrics.sums import BUCKETS, SCHEMA, Ledger, Slice, check_slices, merged, to_table
from trainer import bundle as trained
from trainer.recipe import Recipe
from trainyard.contract import bundle as bundles
from trainyard.contract import manifest as manifests
from trainyard.contract import versions
from trainyard.contract.bundle import ModelBundle
from trainyard.contract.errors import TrainyardError
from trainyard.contract.evaluation import Evaluation, Example, Other, Scores
from trainyard.contract.events import EventLog
from trainyard.contract.manifest import Column
from trainyard.contract.spec import EvaluateSpec

_FEW_PARTS = 64


@dataclass(frozen=True)
class Evaluated:
    """What models made of the same rows: the first of them, and the others beside it."""

    model: Scores
    others: tuple[Other, ...]
    rows: int
    curves: dict[str, list[list[float]]]
    examples: tuple[Example, ...]


def run(spark: SparkSession, spec: EvaluateSpec, events: EventLog) -> dict[str, Any]:
    """Score the models on one split of the batches; the evaluation is written beside the bundle."""
    manifest = manifests.at(spec.batches, spec.batches_version)
    split = manifest.split(spec.split)
    batches.register(spark)
    reader = spark.read.format(batches.FORMAT).options(split=spec.split, version=str(manifest.number))
    application = spark.sparkContext.applicationId
    with (
        versions.pinned(spec.batches, manifest.number, application),
        events.span("evaluate", split=spec.split),
        arrow.batches_of(spec.rows_per_batch or arrow.fitting(manifest.columns), spark),
    ):
        found = evaluate(
            reader.load(spec.batches), [spec.model, *spec.against], spec.metrics, slices=spec.slices,
            query=spec.query, examples=spec.examples, confidence=spec.confidence, rows_per_batch=spec.rows_per_batch,
            parts=len(split.shards),
        )  # fmt: skip
    document = Evaluation(
        **vars(found), dataset=spec.batches, dataset_hash=manifest.content_hash, dataset_version=manifest.number,
        split=spec.split, confidence=spec.confidence, application=application,
    )  # fmt: skip
    document.save()
    return document.summary()


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
    contestants = [_Contestant.enter(uri, metrics) for uri in models]
    label = _common_label(contestants)
    also = [label.name, *slices, *([query] if query else [])]
    for contestant in contestants:
        scoring.check_inputs(frame.schema, contestant.bundle, "what is evaluated", also)
    if query is None and any(isinstance(family, Ranking) for family in contestants[0].families):
        raise TrainyardError(
            "metrics of ranking need query=, the column whose rows with one value are ranked together."
        )
    told = [f.name for f in frame.schema.fields if not _is_long(f.dataType)] if examples else []
    inputs = [column.name for contestant in contestants for column in contestant.bundle.inputs]
    judge = _Judge(tuple(contestants), label, tuple(slices), query, examples, tuple(told), rows_per_batch)
    chosen = frame.select(*dict.fromkeys([*inputs, *also, *told]))
    if query:
        chosen = chosen.repartition(query).sortWithinPartitions(query)
    tables = chosen.mapInArrow(judge.score, from_arrow_schema(_STATE))
    if parts > _FEW_PARTS:
        tables = tables.repartition(int(parts**0.5)).mapInArrow(_merge, from_arrow_schema(_STATE))
    return _judged(tables.toArrow().cast(_STATE).to_batches(), contestants, examples, confidence)


@dataclass(frozen=True)
class _Contestant:
    """One of the models, and the families of metrics as they suit it."""

    uri: str
    document: str
    families: tuple[Family, ...]

    @property
    def bundle(self) -> ModelBundle:
        return ModelBundle.from_json(self.document, origin=self.uri)

    def scores(self, standing: Standing) -> Scores:
        return Scores(
            uri=self.uri, weights_sha256=self.bundle.weights_sha256, metrics=standing.metrics,
            intervals=standing.intervals, slices=standing.slices,
        )  # fmt: skip

    @classmethod
    def enter(cls, uri: str, metrics: Sequence[str]) -> _Contestant:
        found = bundles.current(uri)
        if found.label is None:
            raise TrainyardError(f"the model {uri} was trained without a label, so there is nothing to compare with.")
        applied = trained.restore(uri, found)
        if found.label.kind == "list" or found.label.name in applied.recipe.decode:
            raise TrainyardError(
                f"the label {found.label.name!r} of {uri} is no number or tensor as it lies; metrics cannot compare it."
            )
        output = tuple(applied.output(scoring.zeros(found.inputs)).shape[1:])
        return cls(uri, found.to_json(), (Rows(), *families(metrics, _task(applied.recipe, output, found.label))))


@dataclass(frozen=True)
class _Judge:
    """What a task does with its rows; pickled with its parts by Spark."""

    contestants: tuple[_Contestant, ...]
    label: Column
    slices: tuple[str, ...]
    query: str | None
    examples: int
    told: tuple[str, ...]
    rows_per_batch: int | None

    def score(self, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        ledger = Ledger([contestant.families for contestant in self.contestants])
        context = TaskContext.get()
        chance = np.random.default_rng([context.partitionId() if context else 0])
        worst: list[tuple[float, int, str]] = []
        for part in whole_queries(parts, self.query) if self.query else parts:
            if not part.num_rows:
                continue
            truth, query = scoring.array(part, self.label), _codes(part, self.query) if self.query else None
            assert isinstance(truth, np.ndarray)
            groupings = [np.full(part.num_rows, ledger.number(ALL)), *(self._slices(ledger, part))]
            buckets = chance.integers(0, BUCKETS, part.num_rows)
            for number, contestant in enumerate(self.contestants):
                output = self._output(contestant, part)
                scored = Scored(output, truth, query)
                ledger.add(number, scored, groupings, buckets)
                if number == 0 and self.examples:
                    worst = heapq.nlargest(self.examples, [*worst, *self._worst(part, scored, len(worst))])
        yield _state(ledger.table(), [text for *_, text in worst])

    def _output(self, contestant: _Contestant, part: pa.RecordBatch) -> NDArray[Any]:
        applied = scoring.model(contestant.uri, contestant.document)
        pace = scoring.pace(contestant.uri, contestant.document, self.rows_per_batch)
        columns = {c.name: scoring.array(part, c) for c in applied.bundle.inputs}
        made = pace.over(lambda rows: {"output": applied.output(rows).float().cpu().numpy()}, columns)["output"]
        if not np.isfinite(made).all():
            raise TrainyardError(
                f"the model {contestant.uri} returned what is not finite; look at its weights, and at the rows."
            )
        return made

    def _slices(self, ledger: Ledger, part: pa.RecordBatch) -> Iterator[Integers]:
        for column in self.slices:
            values = pc.fill_null(part.column(column).cast(pa.string()), "null").dictionary_encode()
            numbers = [ledger.number(Slice(column, value)) for value in values.dictionary.to_pylist()]
            yield np.asarray(numbers, np.int64)[values.indices.to_numpy()]

    def _worst(self, part: pa.RecordBatch, scored: Scored, seen: int) -> Iterator[tuple[float, int, str]]:
        losses = next((f for f in (g.losses(scored) for g in self.contestants[0].families) if f is not None), None)
        if losses is None:
            return
        import torch

        first = self.contestants[0]
        rows = np.argsort(-losses, kind="stable")[: self.examples]
        predicted = scoring.model(first.uri, first.document).recipe.predict(torch.from_numpy(scored.output[rows]))
        shown = part.select(list(self.told)).take(pa.array(rows)).to_pylist()
        for number, (row, told) in enumerate(zip(rows, shown, strict=True)):
            prediction = {name: np.asarray(tensor[number]).tolist() for name, tensor in predicted.items()}
            label = scored.truth[row].tolist()
            example = {"loss": float(losses[row]), "label": label, "prediction": prediction, "row": told}
            yield float(losses[row]), -seen - number, json.dumps(example, default=str)


_STATE = pa.schema([*SCHEMA, pa.field("example", pa.string())])


def _state(sums: pa.RecordBatch, examples: Sequence[str]) -> pa.RecordBatch:
    """Sums, and a row for each example."""
    of_sums = pa.RecordBatch.from_arrays([*sums.columns, pa.nulls(sums.num_rows, pa.string())], schema=_STATE)
    others = [pa.nulls(len(examples), field.type) for field in SCHEMA]
    of_examples = pa.RecordBatch.from_arrays([*others, pa.array(examples, pa.string())], schema=_STATE)
    return pa.concat_batches([of_sums, of_examples])


def _merge(states: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = list(states)
    yield _state(to_table(merged(map(_sums, found))), [text for state in found for text in _examples(state)])


def _sums(state: pa.RecordBatch) -> pa.RecordBatch:
    return state.filter(pc.is_null(state.column("example"))).select(SCHEMA.names)


def _examples(state: pa.RecordBatch) -> list[str]:
    return [text for text in state.column("example").to_pylist() if text is not None]


def _judged(
    states: Sequence[pa.RecordBatch], contestants: Sequence[_Contestant], examples: int, confidence: float
) -> Evaluated:
    sums = merged(map(_sums, states))
    count = len({key.slice for key in sums})
    if not count:
        raise TrainyardError("there are no rows to evaluate on.")
    check_slices(count - 1)
    standings = [Standing(sums, number, each.families, confidence) for number, each in enumerate(contestants)]
    scores = [each.scores(standing) for each, standing in zip(contestants, standings, strict=True)]
    first = standings[0]
    others = [Other(**vars(score), differences=first.above(s)) for score, s in zip(scores, standings, strict=True)]
    told = [Example(**json.loads(text)) for state in states for text in _examples(state)]
    worst = heapq.nlargest(examples, told, key=lambda example: example.loss)
    return Evaluated(scores[0], tuple(others[1:]), first.rows, first.curves, tuple(worst))


def whole_queries(parts: Iterable[pa.RecordBatch], column: str) -> Iterator[pa.RecordBatch]:
    """The rows of `parts`, which are sorted by `column`, cut so that rows of one value are in one batch."""
    held: list[pa.RecordBatch] = []
    for part in parts:
        rows = pa.concat_batches([*held, part])
        last = int(np.flatnonzero(np.diff(_codes(rows, column), prepend=-1))[-1]) if rows.num_rows else 0
        if last:
            yield rows.slice(0, last)
        held = [rows.slice(last)]
    yield from held


def _codes(part: pa.RecordBatch, column: str) -> Integers:
    """Numbers that stand for the values of a column, in the order in which they come."""
    return part.column(column).dictionary_encode(null_encoding="encode").indices.to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _is_long(kind: spark_types.DataType) -> bool:
    nested = spark_types.ArrayType | spark_types.MapType | spark_types.StructType
    return isinstance(kind, nested | spark_types.BinaryType)


def _common_label(contestants: Sequence[_Contestant]) -> Column:
    labels = [contestant.bundle.label for contestant in contestants]
    first = labels[0]
    assert first is not None
    for contestant, label in zip(contestants, labels, strict=True):
        if label is None or (label.name, label.shape) != (first.name, first.shape):
            raise TrainyardError(
                f"models to compare must tell the same label: that of {contestants[0].uri} is {first.name!r}, that of "
                f"{contestant.uri} is {label.name if label else None!r}."
            )
    return first


def _task(recipe: Recipe, output: tuple[int, ...], label: Column) -> Task:
    """What the recipe's loss takes the output for: logits, unless it is NLLLoss or BCELoss."""
    from torch import nn

    classes = recipe.classes or (2 if isinstance(recipe.loss, nn.BCELoss | nn.BCEWithLogitsLoss) else None)
    link: Link = "sigmoid" if label.shape or output in ((), (1,)) else "softmax"
    if isinstance(recipe.loss, nn.NLLLoss | nn.BCELoss):
        link = "exp" if isinstance(recipe.loss, nn.NLLLoss) else "none"
    return Task(output, label.shape, classes, link)
