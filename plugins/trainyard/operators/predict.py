"""Predict: Spark applies a model to a source and writes keys and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.operator import COMMON_FIELDS, JobOperator
from trainyard.jobs.options import Templated, default, source_fields
from trainyard.schemas.specs.predict import PredictSpec


class PredictOperator(JobOperator):
    """Writes predictions. Returns their `uri` and number of rows.

    :param model: a name below the storage root, an absolute URI, or `train.output`
    :param source: path (a name below the storage root, or an absolute URI), or the whole source as
        a dict with `format`, `path` and `options`
    :param format: of a `source` that is a path: any that `spark.read` knows
    :param options: of `spark.read`, for a `source` that is a path
    :param prepare: `module:function` that shapes the source as it did for the export; None takes it as it is
    :param prepare_params: its keyword arguments
    :param keys: columns that are written beside the outputs, to join them back
    :param postprocess: `module:function` `(spark, predictions, **params)` that makes of them what is written
    :param postprocess_params: its keyword arguments
    :param output: where predictions go: a name below the storage root, or an absolute URI; or the name of a table
    :param output_format: `parquet`, `dataset` (a dataset), or `table` (of Spark's catalog)
    :param partition_by: a column that the source is partitioned by: only partitions that are new, that changed, or that
        other weights predicted for are predicted for, each replaced whole
    :param rows_per_batch: rows scored at once; by default found by trying
    """

    SPEC = PredictSpec
    OUTPUT = "output"
    STORAGE_OPTIONS = ("model", "output")
    REQUIREMENTS = requirements.PREDICT

    template_fields: ClassVar[Sequence[str]] = (
        "model", "source", "format", "options", "prepare", "prepare_params", "keys", "postprocess",
        "postprocess_params", "predictions", "output_format", "partition_by", "rows_per_batch", *COMMON_FIELDS,
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("source", "options", "prepare_params", "postprocess_params", "conf"), "json"
    )

    def __init__(
        self,
        *,
        model: Any,
        source: str | dict[str, Any],
        keys: Sequence[str],
        output: str,
        format: str = "parquet",
        options: dict[str, str] | None = None,
        prepare: str | None = None,
        prepare_params: dict[str, Any] | None = None,
        postprocess: str | None = None,
        postprocess_params: dict[str, Any] | None = None,
        output_format: str = default(PredictSpec, "output_format"),
        partition_by: str | None = None,
        rows_per_batch: Templated[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.source = source
        self.format = format
        self.options = options
        self.prepare = prepare
        self.prepare_params = prepare_params
        self.keys = keys
        self.postprocess = postprocess
        self.postprocess_params = postprocess_params
        self.output_format = output_format
        self.partition_by = partition_by
        self.predictions = output  # `output` is what Airflow calls a task's own result
        self.rows_per_batch = rows_per_batch
        self.validate_options()

    def resolve_fields(self, root: str) -> dict[str, Any]:
        named = self.spec_fields()["output"]
        return super().resolve_fields(root) | ({"output": named} if self.output_format == "table" else {})

    def spec_fields(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "source": source_fields(self.source, self.format, self.options),
            "prepare": self.prepare,
            "prepare_params": self.prepare_params or {},
            "keys": self.keys,
            "postprocess": self.postprocess,
            "postprocess_params": self.postprocess_params or {},
            "output": self.predictions,
            "output_format": self.output_format,
            "partition_by": self.partition_by,
            "rows_per_batch": self.rows_per_batch,
        }
