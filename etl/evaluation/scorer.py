"""Score the rows of one Spark task, and merge what tasks return."""

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

from trainyard.errors import TrainyardError
from trainyard.etl.evaluation.queries import value_codes, whole_queries
from trainyard.etl.metrics import families
from trainyard.etl.metrics.family import Family, Integers, Link, Scored, Task
from trainyard.etl.metrics.rows import Rows
from trainyard.etl.metrics.scores import ALL, ModelMetrics
from trainyard.etl.metrics.sums import BUCKETS, SCHEMA, Slice, SumAccumulator, merged, to_table
from trainyard.etl.scoring import inputs as scoring
from trainyard.etl.scoring import worker_model
from trainyard.schemas import model_artifact as bundles
from trainyard.schemas.evaluation import Scores
from trainyard.schemas.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.model.trained_model import restore_model


@dataclass(frozen=True)
class EvaluatedModel:
    """One of the models, and the families of metrics as they suit it."""

    uri: str
    document: str
    families: tuple[Family, ...]

    @property
    def artifact(self) -> ModelArtifact:
        return ModelArtifact.from_json(self.document, origin=self.uri)

    def scores(self, model_metrics: ModelMetrics) -> Scores:
        return Scores(
            uri=self.uri, weights_sha256=self.artifact.weights_sha256, metrics=model_metrics.metrics,
            intervals=model_metrics.intervals, slices=model_metrics.slices,
        )  # fmt: skip

    @classmethod
    def load(cls, uri: str, metrics: Sequence[str]) -> EvaluatedModel:
        found = bundles.read_current(uri)
        if found.label is None:
            raise TrainyardError(f"the model {uri} was trained without a label, so there is nothing to compare with.")
        applied = restore_model(uri, found)
        if found.label.kind == "list" or found.label.name in applied.recipe.decode:
            raise TrainyardError(
                f"the label {found.label.name!r} of {uri} is no number or tensor as it lies; metrics cannot compare it."
            )
        output = tuple(applied.output(scoring.zeros(found.inputs)).shape[1:])
        return cls(uri, found.to_json(), (Rows(), *families(metrics, _task(applied.recipe, output, found.label))))


@dataclass(frozen=True)
class Scorer:
    """What a task does with its rows; pickled with its parts by Spark."""

    models: tuple[EvaluatedModel, ...]
    label: Column
    slices: tuple[str, ...]
    query: str | None
    examples: int
    told: tuple[str, ...]
    rows_per_batch: int | None

    def score(self, parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        accumulator = SumAccumulator([model.families for model in self.models])
        context = TaskContext.get()
        chance = np.random.default_rng([context.partitionId() if context else 0])
        worst: list[tuple[float, int, str]] = []
        for part in whole_queries(parts, self.query) if self.query else parts:
            if not part.num_rows:
                continue
            truth, query = scoring.array(part, self.label), value_codes(part, self.query) if self.query else None
            assert isinstance(truth, np.ndarray)
            groupings = [np.full(part.num_rows, accumulator.number(ALL)), *(self._slices(accumulator, part))]
            buckets = chance.integers(0, BUCKETS, part.num_rows)
            for number, model in enumerate(self.models):
                output = self._output(model, part)
                scored = Scored(output, truth, query)
                accumulator.add(number, scored, groupings, buckets)
                if number == 0 and self.examples:
                    worst = heapq.nlargest(self.examples, [*worst, *self._worst(part, scored, len(worst))])
        yield _state(accumulator.table(), [text for *_, text in worst])

    def _output(self, model: EvaluatedModel, part: pa.RecordBatch) -> NDArray[Any]:
        applied = worker_model.model(model.uri, model.document)
        pace = worker_model.pace(model.uri, model.document, self.rows_per_batch)
        columns = {c.name: scoring.array(part, c) for c in applied.artifact.inputs}
        made = pace.over(lambda rows: {"output": applied.output(rows).float().cpu().numpy()}, columns)["output"]
        if not np.isfinite(made).all():
            raise TrainyardError(
                f"the model {model.uri} returned what is not finite; look at its weights, and at the rows."
            )
        return made

    def _slices(self, accumulator: SumAccumulator, part: pa.RecordBatch) -> Iterator[Integers]:
        for column in self.slices:
            values = pc.fill_null(part.column(column).cast(pa.string()), "null").dictionary_encode()
            numbers = [accumulator.number(Slice(column, value)) for value in values.dictionary.to_pylist()]
            yield np.asarray(numbers, np.int64)[values.indices.to_numpy()]

    def _worst(self, part: pa.RecordBatch, scored: Scored, seen: int) -> Iterator[tuple[float, int, str]]:
        losses = next((f for f in (g.losses(scored) for g in self.models[0].families) if f is not None), None)
        if losses is None:
            return
        import torch

        first = self.models[0]
        rows = np.argsort(-losses, kind="stable")[: self.examples]
        predicted = worker_model.model(first.uri, first.document).recipe.predict(torch.from_numpy(scored.output[rows]))
        shown = part.select(list(self.told)).take(pa.array(rows)).to_pylist()
        for number, (row, told) in enumerate(zip(rows, shown, strict=True)):
            prediction = {name: np.asarray(tensor[number]).tolist() for name, tensor in predicted.items()}
            label = scored.truth[row].tolist()
            example = {"loss": float(losses[row]), "label": label, "prediction": prediction, "row": told}
            yield float(losses[row]), -seen - number, json.dumps(example, default=str)


STATE = pa.schema([*SCHEMA, pa.field("example", pa.string())])


def _state(sums: pa.RecordBatch, examples: Sequence[str]) -> pa.RecordBatch:
    """Sums, and a row for each example."""
    of_sums = pa.RecordBatch.from_arrays([*sums.columns, pa.nulls(sums.num_rows, pa.string())], schema=STATE)
    others = [pa.nulls(len(examples), field.type) for field in SCHEMA]
    of_examples = pa.RecordBatch.from_arrays([*others, pa.array(examples, pa.string())], schema=STATE)
    return pa.concat_batches([of_sums, of_examples])


def merge_states(states: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    found = list(states)
    yield _state(to_table(merged(map(sums_of, found))), [text for state in found for text in examples_of(state)])


def sums_of(state: pa.RecordBatch) -> pa.RecordBatch:
    return state.filter(pc.is_null(state.column("example"))).select(SCHEMA.names)


def examples_of(state: pa.RecordBatch) -> list[str]:
    return [text for text in state.column("example").to_pylist() if text is not None]


def _task(recipe: Recipe, output: tuple[int, ...], label: Column) -> Task:
    """What the recipe's loss takes the output for: logits, unless it is NLLLoss or BCELoss."""
    from torch import nn

    classes = recipe.classes or (2 if isinstance(recipe.loss, nn.BCELoss | nn.BCEWithLogitsLoss) else None)
    link: Link = "sigmoid" if label.shape or output in ((), (1,)) else "softmax"
    if isinstance(recipe.loss, nn.NLLLoss | nn.BCELoss):
        link = "exp" if isinstance(recipe.loss, nn.NLLLoss) else "none"
    return Task(output, label.shape, classes, link)
