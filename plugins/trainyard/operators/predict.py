"""Predict: Spark applies a model to a source and writes keys and outputs as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.contract.spec import PredictSpec
from trainyard.operators.base import COMMON_FIELDS, JobOperator
from trainyard.operators.options import Templated, default, source_fields
from trainyard.sizing import Memory


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
    :param output: where predictions go: a name below the storage root, or an absolute URI
    :param rows_per_batch: rows scored at once
    """

    SPEC = PredictSpec
    PRODUCT = "output"
    PLACES = ("model", "output")
    MODULES = (*JobOperator.MODULES, "torch")
    MEMORY = Memory(heap="1g", native="1536m")
    DRIVER_MEMORY = Memory(heap="1g", native="1536m")

    template_fields: ClassVar[Sequence[str]] = (
        "model", "source", "format", "options", "prepare", "prepare_params", "keys", "predictions", "rows_per_batch",
        *COMMON_FIELDS,
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(
        ("source", "options", "prepare_params", "conf"), "json"
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
        rows_per_batch: Templated[int] = default(PredictSpec, "rows_per_batch"),
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
        self.predictions = output  # `output` is what Airflow calls a task's own result
        self.rows_per_batch = rows_per_batch
        self.refuse_bad_input()

    def _fields(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "source": source_fields(self.source, self.format, self.options),
            "prepare": self.prepare,
            "prepare_params": self.prepare_params or {},
            "keys": self.keys,
            "output": self.predictions,
            "rows_per_batch": self.rows_per_batch,
        }
