"""The base class of operators that write datasets."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import TypeAdapter

from trainyard import links
from trainyard.errors import TrainyardError
from trainyard.jobs import reuse, validation
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options import Templated, default, or_empty, source_fields, source_names
from trainyard.operators.spark_stage import STAGE_FIELDS, SparkStageOperator, StageOptions
from trainyard.planning.plan import Plan
from trainyard.schemas import run_record
from trainyard.schemas.manifest import DatasetManifest
from trainyard.schemas.results import DatasetResult
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.export import ExportSpec

if TYPE_CHECKING:
    from airflow.sdk import Context


class DatasetOptions(StageOptions):
    """The options of operators that write datasets, beside the fields of the spec."""

    force: bool


class DatasetOperator(SparkStageOperator):
    """Write a dataset, unless the same one exists. A subclass sets a spec that derives from ExportSpec.

    Args:
        prepare: `module:function`, called as `prepare(spark, source, **prepare_params) -> DataFrame`.
        prepare_params: Keyword arguments of `prepare`.
        source: A path (a name below the storage root, or a URI), or a dict of `format`, `path` and `options`.
        format: The format of a `source` that is a path: any of `spark.read`. By default parquet; a path with another
            ending needs it.
        options: The options of `spark.read`, for a `source` that is a path.
        dataset: Where the dataset is written: a name below the storage root, or a URI.
        partition: The part of the dataset that this export writes, for example "{{ ds }}"; the other partitions stay.
            None writes the whole dataset.
        force: Whether to export although nothing has changed.
        expect: Data quality checks: column -> a dict of `min`, `max`, `nulls` (largest fraction), `values` (the only
            values) and `rows_per_value` (fewest rows). A violation fails the task, and nothing is kept.
        drift: How far columns may drift from the previous version, as a population stability index, for example
            `{"warn": 0.1, "fail": 0.25, "columns": ["age", "city"]}`; by default all columns but dates and times. None
            does not compare.
        splits: Split name -> fraction. The fractions sum to 1.
        split_by: The column whose value decides the split, so that no key is in two splits.
        split_at: The dates or times at which further splits begin, in the column `split_by`, so that the future never
            trains the past: `{"validation": "2026-10-01", "test": "2026-11-01"}`. Earlier rows are in `train`.
        split_column: A string column of `prepare` that names the split of each row. It is not stored.
        folds: In how many parts of equal size the split `train` is divided, for cross-validation with
            `TrainOperator(fold=N)`. They are splits of their own: `fold-1`, `fold-2` and so on.
        stratify: The column within each value of which the fractions hold.
        shapes: Column -> tensor shape, for flat array columns.
        variable_length: Array columns whose length differs from row to row.
        seed: The seed of the splits and of the shuffle.
        rows_per_batch: Rows of one record batch; fewer where they have more than 4 MiB.
        shards: The number of files. By default one for each core of the application; with a pair of `executors` one
            for each 256 MB of the source, as far as all executors have cores.
    """

    SPEC: ClassVar[type[ExportSpec]] = ExportSpec
    OPTIONS = DatasetOptions
    OUTPUT = "dataset"
    STORAGE_OPTIONS: ClassVar[tuple[str, ...]] = ("dataset",)

    template_fields: ClassVar[Sequence[str]] = (
        "prepare", "prepare_params", "source", "format", "options", "dataset", "partition", "force", "expect", "drift",
        "splits", "split_by", "split_at", "split_column", "folds", "stratify", "shapes", "variable_length", "seed",
        "rows_per_batch", "shards", *STAGE_FIELDS,
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("prepare_params", "source", "options", "expect", "drift", "splits", "split_at", "shapes", "conf"), "json"
    )

    def __new__(cls, *args: Any, **options: Any) -> JobOperator:
        """Refuse a partition that is mapped to nothing: None would replace all partitions of the dataset."""
        if "_airflow_from_mapped" in options and _is_nothing(partition := options.get("partition", "-")):
            clause = (
                f"partition={partition!r} in a mapped task names no partition, and without one the whole dataset would "
                "be replaced, with the partitions of the other tasks; name a partition in each. To replace the whole "
                "dataset, remove partition"
            )
            raise TrainyardError(validation.message(cls.__name__, options.get("task_id"), [clause]))
        return super().__new__(cls, *args, **options)

    def __init__(
        self,
        *,
        prepare: str,
        source: str | dict[str, Any],
        dataset: str,
        prepare_params: dict[str, Any] | None = None,
        format: str | None = None,
        options: dict[str, str] | None = None,
        partition: str | None = None,
        force: Templated[bool] = False,
        expect: dict[str, dict[str, Any]] | None = None,
        drift: dict[str, Templated[float] | Sequence[str]] | None = None,
        splits: dict[str, Templated[float]] = default(ExportSpec, "splits"),
        split_by: str | None = None,
        split_at: dict[str, str] | None = None,
        split_column: str | None = None,
        folds: Templated[int] | None = None,
        stratify: str | None = None,
        shapes: dict[str, Sequence[int]] | None = None,
        variable_length: Sequence[str] = (),
        seed: Templated[int] = default(ExportSpec, "seed"),
        rows_per_batch: Templated[int] = default(ExportSpec, "rows_per_batch"),
        shards: Templated[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.prepare = prepare
        self.prepare_params = prepare_params
        self.source = source
        self.format = format
        self.options = options
        self.dataset = dataset
        self.partition = partition
        self._partition_template = str(partition) if validation.is_pending(partition) else ""
        self.force = force
        self.expect = expect
        self.drift = drift
        self.splits = splits
        self.split_by = split_by
        self.split_at = split_at
        self.split_column = split_column
        self.folds = folds
        self.stratify = stratify
        self.shapes = shapes
        self.variable_length = variable_length
        self.seed = seed
        self.rows_per_batch = rows_per_batch
        self.shards = shards

    def run_plan(self, context: Context, plan: Plan) -> dict[str, Any]:
        """Export, unless the dataset is unchanged and this run has not started to write it."""
        fingerprint = reuse.fingerprint(plan.spec, self.dag_file, validation.convert(self, self.OPTIONS))
        plan = replace(plan, spec={**plan.spec, "fingerprint": fingerprint})
        previous = run_record.read_latest(plan.task_key)
        started = previous is not None and run_record.used_application(plan.task_key) != previous.application
        if not started and not TypeAdapter(bool).validate_python(self.force):
            manifest, reason = reuse.find_unchanged(plan.spec)
            dataset = plan.spec["dataset"]
            self.log.info("%s %s: %s", "Skipping the export to" if manifest else "Exporting to", dataset, reason)
            if manifest:
                return self._skip(context, plan, manifest)
        return super().run_plan(context, plan)

    def _skip(self, context: Context, plan: Plan, manifest: DatasetManifest) -> dict[str, Any]:
        """Publish the dataset that exists as the result of this task."""
        result = DatasetResult.from_manifest(plan.spec["dataset"], manifest)
        record = RunRecord(
            task_key=plan.task_key, job=self.SPEC.KIND.removesuffix(" spec"), started_at=time.time(), seconds=0.0,
            application=f"reused {plan.task_key.try_number}", status="succeeded",
            output=result.model_copy(update={"reused": True}),
        )  # fmt: skip
        record.save()
        links.push_report_link(context["ti"], self.conn_id, plan.task_key.dag_id, plan.task_key.run_id)
        return self._publish_result(context, plan.task_key, record)

    def locate_fields(self) -> dict[str, Any]:
        """Return the spec's fields, with a partition if the operator has one: without it all partitions are replaced.

        Raises:
            TrainyardError: The partition has rendered to nothing.
        """
        if self._partition_template and _is_nothing(self.partition):
            raise TrainyardError(
                f"{self.title}: partition={self.partition!r}: its template {self._partition_template!r} rendered to "
                "nothing; write one that always names a partition. To replace the whole dataset, remove partition."
            )
        return super().locate_fields()

    def option_names(self) -> dict[str, str]:
        """Return the options whose names differ from that of their field."""
        return source_names(self.source)

    def spec_fields(self) -> dict[str, Any]:
        """Return the options as fields of the spec."""
        return {
            "prepare": self.prepare,
            "prepare_params": or_empty(self.prepare_params),
            "source": source_fields(self.source, self.format, self.options),
            "dataset": self.dataset,
            "partition": self.partition,
            "expect": or_empty(self.expect),
            "drift": self.drift,
            "splits": self.splits,
            "split_by": self.split_by,
            "split_at": self.split_at,
            "split_column": self.split_column,
            "folds": self.folds,
            "stratify": self.stratify,
            "shapes": or_empty(self.shapes),
            "variable_length": self.variable_length,
            "seed": self.seed,
            "rows_per_batch": self.rows_per_batch,
            "shards": self.shards,
        }


def _is_nothing(rendered: Any) -> bool:
    """Return whether a template or a mapped argument names nothing; None as text is what Airflow renders by default."""
    return rendered is None or (isinstance(rendered, str) and rendered.strip() in ("", "None"))
