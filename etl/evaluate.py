"""The evaluate job: all metrics in one pass over a split, their states merged across partitions."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from etl import arrow, batches, scoring
from trainer import metrics as scores
from trainer import recipe as recipes
from trainyard.contract import bundle as bundles
from trainyard.contract import manifest as manifests
from trainyard.contract import versions
from trainyard.contract.errors import TrainyardError
from trainyard.contract.events import EventLog
from trainyard.contract.spec import EvaluateSpec


def run(spark: SparkSession, spec: EvaluateSpec, events: EventLog) -> dict[str, Any]:
    """Score the model on one split of its batches, or of others with the same columns."""
    manifest = manifests.at(spec.batches, spec.batches_version)
    manifest.split(spec.split)
    batches.register(spark)
    reader = spark.read.format(batches.FORMAT).options(split=spec.split, version=str(manifest.number))
    with (
        versions.pinned(spec.batches, manifest.number, spark.sparkContext.applicationId),
        events.span("evaluate", split=spec.split),
        arrow.batches_of(spec.rows_per_batch, spark),
    ):
        found = evaluate(reader.load(spec.batches), spec.model, spec.metrics)
    return {
        "metrics": found,
        "rows": manifest.split(spec.split).rows,
        "split": spec.split,
        "uri": spec.model,
        "weights_sha256": bundles.current(spec.model).weights_sha256,
        "dataset_hash": manifest.content_hash,
        "dataset_version": manifest.number,
    }


def evaluate(frame: DataFrame, model: str, names: Sequence[str]) -> dict[str, Any]:
    """The metrics called `names` of the model at `model` over a DataFrame with its inputs and label.

    A metric is a float, the confusion matrix a list of rows: entry [i][j] counts the rows of class i
    that were taken for class j.
    """
    found = bundles.current(model)
    label = found.label
    if label is None:
        raise TrainyardError(f"the model {model} was trained without a label, so there is nothing to compare with.")
    recipe = recipes.load(found.recipe, found.recipe_params)
    metrics = scores.named(names, recipe.classes)
    scoring.check_inputs(frame.columns, found, "what is evaluated", also=(label.name,))
    document, classes = found.to_json(), recipe.classes

    def score(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import torch

        gathered = scores.named(names, classes)
        for part in parts:
            if part.num_rows:
                truth = torch.tensor(scoring.array(part, label))
                applied = scoring.model(model, document)
                output = applied.output({c.name: scoring.array(part, c) for c in found.inputs}).cpu()
                gathered.update(output, truth)
        yield pa.RecordBatch.from_pydict({"state": [pickle.dumps(scores.state(gathered))]})

    used = [*(column.name for column in found.inputs), label.name]
    states = frame.select(*used).mapInArrow(score, "state binary").collect()
    # Pickled by our own workers a moment ago, in this application.
    return scores.merged(metrics, (pickle.loads(row.state) for row in states))  # noqa: S301
