"""What operators that write datasets have in common: options, and exports that have nothing to do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard import links
from trainyard.jobs import reuse
from trainyard.jobs.operator import COMMON_FIELDS, JobOperator
from trainyard.jobs.options import Templated, default, source_fields
from trainyard.planning.plan import Plan
from trainyard.schemas import run_record
from trainyard.schemas.manifest import DatasetManifest
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.export import ExportSpec

if TYPE_CHECKING:
    from airflow.sdk import Context


class DatasetOperator(JobOperator):
    """Writes a dataset, unless it is there already. A subclass has a spec that is an ExportSpec.

    Nothing runs when the dataset is there already, written from the same source files by the same code and options; the
    log says so. What `prepare` reads beside its source is not seen: name it in `prepare_params`, or write `force=True`.

    :param prepare: `module:function`, called as `prepare(spark, source, **prepare_params) -> DataFrame`
    :param source: path (a name below the storage root, or an absolute URI), or the whole source as
        a dict with `format`, `path` and `options`
    :param format: of a `source` that is a path: any that `spark.read` knows
    :param options: of `spark.read`, for a `source` that is a path
    :param dataset: where the dataset goes: a name below the storage root, or an absolute URI
    :param partition: which part of the dataset this export writes, such as "{{ ds }}"; the others stay. None writes
        the whole dataset
    :param force: whether to export although nothing has changed
    :param expect: column -> what is expected of it in each split: `min`, `max`, `nulls` (largest fraction), `values`
        (the only ones), `rows_per_value` (least). What is not so fails the task, and is not kept
    :param drift: `{"warn": 0.1, "fail": 0.25}`: how far columns may drift from the version before, as a population
        stability index; None does not look
    :param splits: name -> fraction; they sum to 1
    :param split_by: column whose value decides the split, so that one key never crosses splits
    :param stratify: column within each value of which the splits are even
    :param shapes: column -> shape, for flat array columns that hold tensors
    :param variable_length: array columns whose length differs from row to row
    :param seed: of the shuffle
    :param rows_per_batch: rows in one record batch
    :param shards: number of files; None leaves it to the job
    """

    SPEC: ClassVar[type[ExportSpec]] = ExportSpec
    OUTPUT = "dataset"
    STORAGE_OPTIONS: ClassVar[tuple[str, ...]] = ("dataset",)

    template_fields: ClassVar[Sequence[str]] = (
        "prepare", "prepare_params", "source", "format", "options", "dataset", "partition", "force", "expect", "drift",
        "splits", "split_by", "stratify", "shapes", "variable_length", "seed", "rows_per_batch", "shards", *COMMON_FIELDS,
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("prepare_params", "source", "options", "expect", "drift", "splits", "shapes", "conf"), "json"
    )

    def __init__(
        self,
        *,
        prepare: str,
        source: str | dict[str, Any],
        dataset: str,
        prepare_params: dict[str, Any] | None = None,
        format: str = "parquet",
        options: dict[str, str] | None = None,
        partition: str | None = None,
        force: Templated[bool] = False,
        expect: dict[str, dict[str, Any]] | None = None,
        drift: dict[str, Templated[float]] | None = None,
        splits: dict[str, Templated[float]] = default(ExportSpec, "splits"),
        split_by: str | None = None,
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
        self.force = force
        self.expect = expect
        self.drift = drift
        self.splits = splits
        self.split_by = split_by
        self.stratify = stratify
        self.shapes = shapes
        self.variable_length = variable_length
        self.seed = seed
        self.rows_per_batch = rows_per_batch
        self.shards = shards

    def execute(self, context: Context) -> dict[str, Any]:
        """As of every job, unless the dataset is there already and this run has not begun to write it."""
        planned = self._plan_or_fail(context)
        planned = replace(planned, spec={**planned.spec, "fingerprint": reuse.fingerprint(planned.spec, self.dag_file)})
        last = run_record.read_latest(planned.task_key)
        begun = last is not None and run_record.used_application(planned.task_key) != last.application
        if not begun and str(self.force).lower() != "true":
            found, why = reuse.unchanged(planned.spec)
            self.log.info(
                "%s %s: %s", "Nothing to export to" if found else "Exporting to", planned.spec["dataset"], why
            )
            if found:
                return self._reused(context, planned, found)
        return self._submit(context, planned)

    def _reused(self, context: Context, planned: Plan, found: DatasetManifest) -> dict[str, Any]:
        uri = planned.spec["dataset"]
        told = RunRecord(
            task_key=planned.task_key, job=self.SPEC.KIND.removesuffix(" spec"), started_at=time.time(), seconds=0.0,
            application=f"reused {planned.task_key.try_number}", status="succeeded",
            output=found.summary(uri) | {"reused": True},
        )  # fmt: skip
        told.save()
        links.push_report_link(context["ti"], self.conn_id, planned.task_key.dag_id, planned.task_key.run_id)
        self._render_report(planned.task_key.directory)
        return self._publish_result(context, planned.task_key, told)

    def spec_fields(self) -> dict[str, Any]:
        return {
            "prepare": self.prepare,
            "prepare_params": self.prepare_params or {},
            "source": source_fields(self.source, self.format, self.options),
            "dataset": self.dataset,
            "partition": self.partition,
            "expect": self.expect or {},
            "drift": self.drift,
            "splits": self.splits,
            "split_by": self.split_by,
            "stratify": self.stratify,
            "shapes": self.shapes or {},
            "variable_length": self.variable_length,
            "seed": self.seed,
            "rows_per_batch": self.rows_per_batch,
            "shards": self.shards,
        }
