"""The evaluate job: all metrics of all models in one pass over a split, their sums merged across partitions."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from trainyard.etl.datasource import arrow_batches, source
from trainyard.etl.evaluation.evaluate import evaluate
from trainyard.schemas import manifest as manifests
from trainyard.schemas import versions
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.events import EventLog
from trainyard.schemas.specs.evaluate import EvaluateSpec


def run(spark: SparkSession, spec: EvaluateSpec, events: EventLog) -> dict[str, Any]:
    """Score the models on one split of the batches; the evaluation is written beside the bundle."""
    manifest = manifests.read_version(spec.dataset, spec.dataset_version)
    split = manifest.split(spec.split)
    source.register(spark)
    reader = spark.read.format(source.FORMAT).options(split=spec.split, version=str(manifest.number))
    application = spark.sparkContext.applicationId
    with (
        versions.leased(spec.dataset, manifest.number, application),
        events.span("evaluate", split=spec.split),
        arrow_batches.batches_of(spec.rows_per_batch or arrow_batches.fitting(manifest.columns), spark),
    ):
        found = evaluate(
            reader.load(spec.dataset), [spec.model, *spec.baselines], spec.metrics, slices=spec.slices,
            query=spec.query, examples=spec.examples, confidence=spec.confidence, rows_per_batch=spec.rows_per_batch,
            parts=len(split.shards),
        )  # fmt: skip
    document = Evaluation(
        **vars(found), dataset=spec.dataset, dataset_hash=manifest.content_hash, dataset_version=manifest.number,
        split=spec.split, confidence=spec.confidence, application=application,
    )  # fmt: skip
    document.save()
    return document.summary()
