"""What operators that write batch datasets have in common: options, and exports that have nothing to do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard import reuse
from trainyard.contract import record
from trainyard.contract.manifest import BatchManifest
from trainyard.contract.record import RunRecord
from trainyard.contract.spec import ExportSpec
from trainyard.operators.base import COMMON_FIELDS, JobOperator
from trainyard.operators.options import Templated, default, source_fields
from trainyard.plan import Plan

if TYPE_CHECKING:
    from airflow.sdk import Context


class ExportingOperator(JobOperator):
    """Writes a batch dataset, unless it is there already. A subclass has a spec that is an ExportSpec.

    Nothing runs when the dataset is there already, written from the same source files by the same code and options; the
    log says so. What `prepare` reads beside its source is not seen: name it in `prepare_params`, or write `force=True`.

    :param prepare: `module:function`, called as `prepare(spark, source, **prepare_params) -> DataFrame`
    :param source: path (a name below the storage root, or an absolute URI), or the whole source as
        a dict with `format`, `path` and `options`
    :param format: of a `source` that is a path: any that `spark.read` knows
    :param options: of `spark.read`, for a `source` that is a path
    :param batches: where the dataset goes: a name below the storage root, or an absolute URI
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
    :param lists: array columns whose length differs from row to row
    :param seed: of the shuffle
    :param rows_per_batch: rows in one record batch
    :param shards: number of files; None leaves it to the job
    """

    SPEC: ClassVar[type[ExportSpec]] = ExportSpec
    PRODUCT = "batches"
    PLACES: ClassVar[tuple[str, ...]] = ("batches",)

    template_fields: ClassVar[Sequence[str]] = (
        "prepare", "prepare_params", "source", "format", "options", "batches", "partition", "force", "expect", "drift",
        "splits", "split_by", "stratify", "shapes", "lists", "seed", "rows_per_batch", "shards", *COMMON_FIELDS,
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("prepare_params", "source", "options", "expect", "drift", "splits", "shapes", "conf"), "json"
    )

    def __init__(
        self,
        *,
        prepare: str,
        source: str | dict[str, Any],
        batches: str,
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
        lists: Sequence[str] = (),
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
        self.batches = batches
        self.partition = partition
        self.force = force
        self.expect = expect
        self.drift = drift
        self.splits = splits
        self.split_by = split_by
        self.stratify = stratify
        self.shapes = shapes
        self.lists = lists
        self.seed = seed
        self.rows_per_batch = rows_per_batch
        self.shards = shards

    def execute(self, context: Context) -> dict[str, Any]:
        """As of every job, unless the dataset is there already and this run has not begun to write it."""
        planned = self._planned(context)
        planned = replace(
            planned, spec={**planned.spec, "fingerprint": reuse.fingerprint(planned.spec, self._dag_file())}
        )
        last = record.newest(planned.place)
        begun = last is not None and record.taken(planned.place) != last.application
        if not begun and str(self.force).lower() != "true":
            found, why = reuse.unchanged(planned.spec)
            self.log.info(
                "%s %s: %s", "Nothing to export to" if found else "Exporting to", planned.spec["batches"], why
            )
            if found:
                return self._reused(context, planned, found)
        return self._submitted(context, planned)

    def _reused(self, context: Context, planned: Plan, found: BatchManifest) -> dict[str, Any]:
        uri = planned.spec["batches"]
        told = RunRecord(
            place=planned.place, job=self.SPEC.KIND.removesuffix(" spec"), started_at=time.time(), seconds=0.0,
            application=f"reused {planned.place.try_number}", status="succeeded",
            output=found.summary(uri) | {"reused": True},
        )  # fmt: skip
        told.save()
        self._push_links(context, planned.place)
        self._report(planned.place.directory)
        return self._result(context, planned.place, told)

    def _fields(self) -> dict[str, Any]:
        return {
            "prepare": self.prepare,
            "prepare_params": self.prepare_params or {},
            "source": source_fields(self.source, self.format, self.options),
            "batches": self.batches,
            "partition": self.partition,
            "expect": self.expect or {},
            "drift": self.drift,
            "splits": self.splits,
            "split_by": self.split_by,
            "stratify": self.stratify,
            "shapes": self.shapes or {},
            "lists": self.lists,
            "seed": self.seed,
            "rows_per_batch": self.rows_per_batch,
            "shards": self.shards,
        }
