"""Score the rows of one Spark task with all models."""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from pyspark import TaskContext

from trainyard.errors import TrainyardError
from trainyard.etl.evaluation.evaluated_model import EvaluatedModel
from trainyard.etl.evaluation.queries import encode_values, regroup_batches
from trainyard.etl.evaluation.states import build_state
from trainyard.etl.metrics.family import Integers, ScoredRows, number_rows
from trainyard.etl.metrics.sums import ALL_ROWS, BUCKETS, Slice, SumAccumulator
from trainyard.etl.scoring import arrays, worker_model
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.heads import ONLY
from trainyard.trainer.model.artifacts.rows import DecodedRows
from trainyard.trainer.model.artifacts.trained_model import TrainedModel, to_array

MAX_OUTPUTS = 1 << 20
"""The elements of outputs that are scored at a time: 8 MiB in float64, of which metrics take several at once."""
Candidate = tuple[float, int, str]
"""An example: its loss, its rank among equal losses (the earlier the higher), and its JSON."""


@dataclass(frozen=True)
class Scorer:
    """What a task does with its rows; pickled by Spark.

    Attributes:
        models: The models, and each head of those that have some.
        slices: The columns to slice the metrics by.
        query: The column whose rows with one value are ranked together.
        examples: The number of rows with the highest loss to return.
        examined: The numbers of the models to return examples of, each of the first head of one.
        shown_columns: The columns that an example shows.
        rows_per_batch: The number of rows that a network is applied to at a time, None to find it.
    """

    models: tuple[EvaluatedModel, ...]
    slices: tuple[str, ...]
    query: str | None
    examples: int
    shown_columns: tuple[str, ...]
    rows_per_batch: int | None
    examined: tuple[int, ...] = (0,)

    @cached_property
    def _trained(self) -> dict[tuple[str, str], TrainedModel]:
        return worker_model.load_models(tuple(dict.fromkeys((model.uri, model.document) for model in self.models)))

    @cached_property
    def _inputs(self) -> dict[Column, str]:
        """The columns that the models take, each with a name: models may take one in different types."""
        columns = dict.fromkeys(column for trained in self._trained.values() for column in trained.artifact.inputs)
        return {column: str(number) for number, column in enumerate(columns)}

    def score(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the state of the rows of `batches`.

        Raises:
            TrainyardError: A column is not valid, a model's output is not finite, or there are too many slices.
        """
        accumulator = SumAccumulator([model.families for model in self.models])
        context = TaskContext.get()
        random = np.random.default_rng([context.partitionId() if context else 0])
        examples: dict[int, list[Candidate]] = {number: [] for number in self.examined}
        for batch in regroup_batches(batches, self.query) if self.query else self._split(batches):
            if not batch.num_rows:
                continue
            query = self._number_queries(batch)
            everything = np.full(batch.num_rows, accumulator.number_slice(ALL_ROWS))
            groupings = [everything, *self._number_slices(accumulator, batch)]
            buckets = random.integers(0, BUCKETS, batch.num_rows)
            outputs = self._apply_all(batch)
            for number, model in enumerate(self.models):
                truth = arrays.to_array(batch, model.label)
                assert isinstance(truth, np.ndarray)
                rows = ScoredRows(outputs[number], truth, query, arrays.find_labeled(truth, model.label))
                accumulator.add(number, rows, groupings, buckets)
                if number in examples and self.examples:
                    known = examples[number]
                    candidates = self._find_examples(number, batch, rows, outputs, len(known))
                    examples[number] = heapq.nlargest(self.examples, [*known, *candidates])
        yield build_state(
            accumulator.to_table(), {number: [text for *_, text in worst] for number, worst in examples.items()}
        )

    def apply_to_first(self, batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[list[NDArray[Any]]]:
        """Yield the outputs of all models for the first `rows` rows of `batches` at once; nothing if there are none.

        Raises:
            TrainyardError: A model's output is not finite.
        """
        parts: list[list[NDArray[Any]]] = []
        for batch in filter(len, batches):
            parts.append(self._apply_all(batch.slice(0, rows)))
            rows -= batch.num_rows
            if rows <= 0:
                break
        if parts:
            yield [np.concatenate(of_model) for of_model in zip(*parts, strict=True)]

    def _split(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `batches` in parts whose outputs have `MAX_OUTPUTS` elements at most."""
        rows = 0
        for batch in filter(len, batches):
            rows = rows or max(MAX_OUTPUTS // self._count_outputs(), 1)
            yield from (batch.slice(start, rows) for start in range(0, batch.num_rows, rows))

    def _count_outputs(self) -> int:
        """Return the number of elements of the largest output for a row."""
        counts = [1]
        for model in self.models:
            trained = self._trained[model.uri, model.document]
            output = trained.output(arrays.build_zero_rows(trained.artifact.inputs))
            counts.append(trained.recipe.split_output(output)[model.head][0].numel())
        return max(counts)

    def _apply_all(self, batch: pa.RecordBatch) -> list[NDArray[Any]]:
        """Return the output of each of `models` for the rows of a batch; a network is applied once for its heads."""
        tuner = worker_model.get_tuner(tuple(self._trained), self.rows_per_batch)
        columns = {number: arrays.to_array(batch, column) for column, number in self._inputs.items()}
        outputs = tuner.apply(self._apply_networks, columns)
        return [outputs[str(number)] for number in range(len(self.models))]

    def _apply_networks(self, columns: arrays.Columns) -> dict[str, NDArray[Any]]:
        """Return the output of each of `models` for some rows, by its number. What models share is decoded once."""
        outputs: dict[str, NDArray[Any]] = {}
        decoded: DecodedRows | None = {} if len(self._trained) > 1 else None
        for (uri, document), trained in self._trained.items():
            with worker_model.name_in_errors(uri):
                rows = {column.name: columns[self._inputs[column]] for column in trained.artifact.inputs}
                by_head = trained.recipe.split_output(trained.output(rows, decoded))
            for number, model in enumerate(self.models):
                if (model.uri, model.document) == (uri, document):
                    outputs[str(number)] = _to_finite(uri, by_head[model.head])
        return outputs

    def _number_queries(self, batch: pa.RecordBatch) -> Integers | None:
        if self.query is None:
            return None
        if batch.column(self.query).null_count:
            raise TrainyardError(
                f"query={self.query!r} names a column that is null in a row; fill it, or drop rows without a query."
            )
        return encode_values(batch, self.query)

    def _number_slices(self, accumulator: SumAccumulator, batch: pa.RecordBatch) -> Iterator[Integers]:
        """Yield, for each column of `slices`, the number of the slice of each row."""
        for column in self.slices:
            values = _normalize_zero(batch.column(column)).cast(pa.string()).dictionary_encode(null_encoding="encode")
            names = map(_name_value, values.dictionary.to_pylist())
            numbers = [accumulator.number_slice(Slice(column, name)) for name in names]
            yield np.asarray(numbers, np.int64)[values.indices.to_numpy()]

    def _find_examples(
        self, number: int, batch: pa.RecordBatch, rows: ScoredRows, outputs: Sequence[NDArray[Any]], seen: int
    ) -> Iterator[Candidate]:
        """Yield the rows of a batch on which a model has the highest loss.

        Args:
            number: The number of the model.
            batch: The batch.
            rows: Its rows, as the model has scored them.
            outputs: The outputs of all models.
            seen: How many examples are known.
        """
        model = self.models[number]
        labeled = number_rows(rows) if rows.labeled is None else rows.labeled
        scored = rows.select(labeled)
        losses = next((x for x in (family.compute_losses(scored) for family in model.families) if x is not None), None)
        if losses is None:
            return
        worst = np.argsort(-losses, kind="stable")[: self.examples]
        losses, numbers = losses[worst], labeled[worst]
        trained = self._trained[model.uri, model.document]
        own = {
            other.head: torch.from_numpy(output[numbers]).to(trained.device)
            for other, output in zip(self.models, outputs, strict=True)
            if (other.uri, other.document) == (model.uri, model.document)
        }
        with torch.no_grad():
            predicted = trained.recipe.predict_columns(own if trained.recipe.heads else own[ONLY])
        predictions = trained.name_classes({name: to_array(name, tensor) for name, tensor in predicted.items()})
        shown = batch.select(list(self.shown_columns)).take(pa.array(numbers)).to_pylist()
        for index, (row, values) in enumerate(zip(numbers, shown, strict=True)):
            example = {
                "loss": float(losses[index]),
                "label": rows.truth[row].tolist(),
                "prediction": {name: column[index : index + 1].tolist()[0] for name, column in predictions.items()},
                "row": values,
            }
            yield float(losses[index]), -seen - index, json.dumps(example, default=str)


def _to_finite(uri: str, output: torch.Tensor) -> NDArray[Any]:
    """Return the output of a model as an array. Raises TrainyardError if it has values that are not finite."""
    array: NDArray[Any] = output.float().cpu().numpy()
    if not np.isfinite(array).all():
        raise TrainyardError(
            f"the output of the model {uri} has values that are not finite; check its weights and the rows."
        )
    return array


def _normalize_zero(values: pa.Array) -> pa.Array:
    """Return values of which -0.0 is 0.0, as in partitions of predictions."""
    return pc.add(values, pa.scalar(0, values.type)) if pa.types.is_floating(values.type) else values


def _name_value(value: str | None) -> str:
    """Return the name of a value's slice: `null` for null, and in quotes the text that would look like it."""
    if value is None:
        return "null"
    return json.dumps(value, ensure_ascii=False) if value == "null" or value.startswith('"') else value
