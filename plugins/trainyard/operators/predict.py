"""Predict: apply a model to a source with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.options import Templated, default, or_empty, source_fields, source_names
from trainyard.operators.spark_stage import STAGE_FIELDS, SparkStageOperator
from trainyard.schemas.specs.predict import PredictSpec


class PredictOperator(SparkStageOperator):
    """Apply a model to the rows of a source, and write keys and outputs; all of them or none.

    Returns (XCom): `uri`, `rows`, `columns` and the model's `weights_sha256`.

    Args:
        model: The model: a name below the storage root, a URI, or `train.output`, which also sets the weights.
        source: A path (a name below the storage root, or a URI), or a dict of `format`, `path` and `options`.
        format: The format of a `source` that is a path: any of `spark.read`. By default parquet; a path with another
            ending needs it.
        options: The options of `spark.read`, for a `source` that is a path.
        prepare: `module:function` that shapes the source as it did for the export. None uses the source as it is.
        prepare_params: Keyword arguments of `prepare`.
        keys: Columns that are written beside the outputs.
        postprocess: `module:function`, called as `postprocess(spark, predictions, **postprocess_params)`, that returns
            what is written.
        postprocess_params: Keyword arguments of `postprocess`.
        output: Where predictions are written: a name below the storage root, a URI, or the name of a table.
        output_format: `parquet`, `trainyard` (a dataset), or `table` (of Spark's catalog).
        partition_by: A column that the source is partitioned by. Only partitions are predicted that are new, that
            changed, or that other weights predicted; each is replaced as a whole.
        rows_per_batch: Rows that are scored at once. By default the fastest number is found by trying.
    """

    SPEC = PredictSpec
    OUTPUT = "output"
    STORAGE_OPTIONS = ("model", "output")
    REQUIREMENTS = requirements.PREDICT

    template_fields: ClassVar[Sequence[str]] = (
        "model", "source", "format", "options", "prepare", "prepare_params", "keys", "postprocess",
        "postprocess_params", "predictions", "output_format", "partition_by", "rows_per_batch", *STAGE_FIELDS,
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
        format: str | None = None,
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
        self.predictions = output  # Airflow's operators have an `output` of their own
        self.rows_per_batch = rows_per_batch
        self.validate_options()

    def resolve_fields(self, root: str) -> dict[str, Any]:
        """Return the spec's fields; the name of a table is not a path."""
        table = {"output": self.predictions} if self.output_format == "table" else {}
        return super().resolve_fields(root) | table

    def option_names(self) -> dict[str, str]:
        """Return the options whose names differ from that of their field."""
        return source_names(self.source)

    def spec_fields(self) -> dict[str, Any]:
        """Return the options as fields of the spec."""
        return {
            "model": self.model,
            "source": source_fields(self.source, self.format, self.options),
            "prepare": self.prepare,
            "prepare_params": or_empty(self.prepare_params),
            "keys": self.keys,
            "postprocess": self.postprocess,
            "postprocess_params": or_empty(self.postprocess_params),
            "output": self.predictions,
            "output_format": self.output_format,
            "partition_by": self.partition_by,
            "rows_per_batch": self.rows_per_batch,
        }
