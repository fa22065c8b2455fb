"""Export: write a dataset with Spark."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import TypeAdapter

from trainyard import links
from trainyard.errors import TrainyardError
from trainyard.jobs import reuse
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options import validation
from trainyard.jobs.options.base import Templated, default
from trainyard.operators.bases.spark_stage import SparkStageOperator, StageOptions
from trainyard.planning.plan import Plan
from trainyard.schemas.datasets.fingerprint import find_unchanged, is_complete
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.schemas.results import DatasetResult
from trainyard.schemas.runs import run_record
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.export import ExportSpec
from trainyard.schemas.specs.task_key import TaskKey

if TYPE_CHECKING:
    from airflow.sdk import Context


_REUSED = "reused"
"""What the record of a task without an application has in its place, with the number of the attempt."""


class ExportOptions(StageOptions):
    """The options beside the fields of the spec."""

    force: bool
    """Whether to export although nothing has changed."""


class ExportOperator(SparkStageOperator):
    """Read a source with Spark, shape it with the user's `prepare`, and write a dataset.

    Returns (XCom): `uri`, `content_hash`, `version`, `rows`, `splits` and further counts of the dataset.

    An export whose source files, code and options are unchanged is skipped; the log says so. Files that `prepare` reads
    beside its source are not checked: name them in `prepare_params`, or set `force=True`.
    """

    SPEC: ClassVar[type[ExportSpec]] = ExportSpec
    OPTIONS = ExportOptions

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
        source: str | dict[str, Any] | None = None,
        sources: dict[str, Any] | None = None,
        dataset: str | None = None,
        prepare_params: dict[str, Any] | None = None,
        format: str | None = None,
        options: dict[str, str | int | float | bool] | None = None,
        partition: str | None = None,
        force: Templated[bool] = False,
        expect: dict[str, dict[str, Any]] | None = None,
        expect_rows: dict[str, Templated[int]] | None = None,
        drift: dict[str, Templated[float] | Sequence[str]] | None = None,
        splits: dict[str, Templated[float]] | dict[str, str] | str = default(ExportSpec, "splits"),
        split_by: str | None = None,
        folds: Templated[int] | None = None,
        stratify: str | None = None,
        shapes: dict[str, Sequence[int]] | None = None,
        variable_length: Sequence[str] = (),
        categories: Sequence[str] | dict[str, dict[str, Templated[int]]] = default(ExportSpec, "categories"),
        label: str | Sequence[str] | None = None,
        nullable: Sequence[str] = (),
        fit: str | None = None,
        fit_params: dict[str, Any] | None = None,
        refit: Templated[bool] = default(ExportSpec, "refit"),
        seed: Templated[int] = default(ExportSpec, "seed"),
        rows_per_batch: Templated[int] = default(ExportSpec, "rows_per_batch"),
        shards: Templated[int] | None = None,
        **kwargs: Any,
    ) -> None:
        self._partition_template = str(partition) if validation.is_pending(partition) else ""
        super().__init__(**kwargs)

    def run_plan(self, context: Context, plan: Plan) -> dict[str, Any]:
        """Export, unless the dataset is unchanged and this run has not started to write it."""
        fingerprint = reuse.fingerprint(plan.job, self.dag_file)
        plan = plan.with_job(spec={**plan.job.spec, "fingerprint": fingerprint})
        previous = run_record.read_latest(plan.job.task_key)
        started = previous is not None and run_record.used_application(plan.job.task_key) != previous.application
        if not started and not TypeAdapter(bool).validate_python(self.force):
            dataset = plan.job.spec["dataset"]
            manifest, reason = find_unchanged(dataset, plan.job.spec["partition"], fingerprint)
            decision = "Skipping the export" if manifest else "Exporting" if is_complete(fingerprint) else "Comparing"
            self.log.info("%s to %s: %s", decision, dataset, reason)
            if manifest:
                return self._skip(context, plan, manifest)
            plan = plan.with_job(spec={**plan.job.spec, "skip_unchanged": not is_complete(fingerprint)})
        return super().run_plan(context, plan)

    def _publish_result(self, context: Context, task_key: TaskKey, record: RunRecord) -> dict[str, Any]:
        """Publish the result, and say that the job has found nothing to write."""
        result = super()._publish_result(context, task_key, record)
        if record.output.get("reused") and not record.application.startswith(_REUSED):
            self.log.info(
                "The export to %s was skipped: sources, code and options are those of version %s.",
                result["uri"], result["version"],
            )  # fmt: skip
        return result

    def _skip(self, context: Context, plan: Plan, manifest: DatasetManifest) -> dict[str, Any]:
        """Publish the dataset that exists as the result of this task."""
        result = DatasetResult.from_manifest(plan.job.spec["dataset"], manifest, plan.job.spec["partition"])
        record = RunRecord(
            task_key=plan.job.task_key, job=self.SPEC.KIND.removesuffix(" spec"), started_at=time.time(), seconds=0.0,
            application=f"{_REUSED} {plan.job.task_key.try_number}", status="succeeded",
            output=result.model_copy(update={"reused": True}),
        )  # fmt: skip
        record.save()
        links.push_report_link(context["ti"], self.conn_id, plan.job.task_key.dag_id, plan.job.task_key.run_id)
        return self._publish_result(context, plan.job.task_key, record)

    def list_partitions(self, record: RunRecord) -> list[str]:
        """Return the partition, if the operator has one."""
        return [] if self.partition is None else [str(self.partition)]

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


def _is_nothing(rendered: Any) -> bool:
    """Return whether a template or a mapped argument names nothing; None as text is what Airflow renders by default."""
    return rendered is None or (isinstance(rendered, str) and rendered.strip() in ("", "None"))
