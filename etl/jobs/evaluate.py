"""The evaluate job: compute all metrics of all models in one pass over a split of a dataset."""

from __future__ import annotations

from pyspark.sql import SparkSession

from trainyard.etl.evaluation.evaluate import evaluate_each
from trainyard.etl.jobs.exporting import sizes
from trainyard.etl.jobs.preload import preload
from trainyard.etl.scoring.scan import DatasetScan
from trainyard.schemas.datasets import versions
from trainyard.schemas.evaluation import Evaluation
from trainyard.schemas.results import EvaluationResult, EvaluationsResult
from trainyard.schemas.runs.events import EventLog
from trainyard.schemas.runs.phases import Phase
from trainyard.schemas.specs.evaluate import EvaluateSpec


def run(spark: SparkSession, spec: EvaluateSpec, events: EventLog) -> EvaluationResult | EvaluationsResult:
    """Evaluate the models, and write the evaluation of each beside it.

    Raises:
        TrainyardError: The split, a column or a model does not exist, or a metric does not apply to a model.
    """
    assert spec.dataset is not None, "the plan names it"
    preload(spark)
    version = {} if spec.dataset_version is None else {"version": str(spec.dataset_version)}
    rows = DatasetScan(spark, spec.dataset, {"split": spec.split, **version})
    manifest, application = rows.manifest, spark.sparkContext.applicationId
    manifest.split(spec.split)  # raises the error of a split that does not exist
    rows_per_batch = spec.rows_per_batch or sizes.choose_batch_rows(manifest.columns, manifest)
    rows.batch_rows = rows_per_batch
    with (
        versions.lease(spec.dataset, manifest.number, application),
        events.span(Phase.EVALUATE, split=spec.split),
        sizes.limit_batch_rows(rows_per_batch, spark),
    ):
        results = evaluate_each(
            rows, spec.evaluated, spec.baselines, spec.metrics, slices=spec.slices, query=spec.query,
            examples=spec.examples, confidence=spec.confidence, rows_per_batch=spec.rows_per_batch,
        )  # fmt: skip
    evaluations = [
        Evaluation(
            **vars(result), dataset=spec.dataset, dataset_hash=manifest.content_hash, dataset_version=manifest.number,
            split=spec.split, confidence=spec.confidence, query=spec.query, application=application,
        )
        for result in results
    ]  # fmt: skip
    for evaluation in evaluations:
        evaluation.save()
    returned = list(map(EvaluationResult.from_evaluation, evaluations))
    return EvaluationsResult.from_evaluations(spec.task_key.root, returned) if spec.models else returned[0]
