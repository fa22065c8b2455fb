"""Predict: apply a model to a source with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.jobs.options import requirements
from trainyard.jobs.options.base import Templated, default
from trainyard.operators.bases.spark_stage import SparkStageOperator
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.predict import PredictSpec


class PredictOperator(SparkStageOperator):
    """Apply a model to the rows of a source, and write keys and outputs; all of them or none.

    Returns (XCom): `uri`, `rows`, `columns` and the model's `weights_sha256`.
    """

    SPEC = PredictSpec
    REQUIREMENTS = requirements.PREDICT

    def __init__(
        self,
        *,
        model: Any,
        source: str | dict[str, Any] | None = None,
        sources: dict[str, Any] | None = None,
        keys: Sequence[str] = (),
        output: str | None = None,
        format: str | None = None,
        options: dict[str, str | int | float | bool] | None = None,
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

    def list_partitions(self, record: RunRecord) -> list[str]:
        """Return the partitions that were predicted, if the operator has `partition_by`."""
        return list(record.output.get("partitions", ()))

    def resolve_fields(self, root: str) -> dict[str, Any]:
        """Return the spec's fields; the name of a table is not a path."""
        table = {"output": self.predictions} if self.output_format == "table" else {}
        return super().resolve_fields(root) | table
