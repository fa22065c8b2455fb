"""The spec of the prediction job."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt, model_validator

from trainyard.schemas.specs.fields import ImportPath
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.source import Source


class PredictSpec(JobSpec):
    """Apply `model` to what `prepare` makes of `source`; write `keys` and the outputs.

    `postprocess` is a last change of what is written. With `partition_by`, a column, only partitions of the source that
    are new, or changed, or were predicted for by other weights are predicted for. `rows_per_batch` is found if it is
    not given.
    """

    KIND: ClassVar[str] = "predict spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.predict:run"

    model: str
    source: Source
    prepare: ImportPath | None = None
    prepare_params: dict[str, Any] = {}
    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    postprocess: ImportPath | None = None
    postprocess_params: dict[str, Any] = {}
    output: str
    output_format: Literal["parquet", "trainyard", "table"] = "parquet"
    partition_by: str | None = None
    rows_per_batch: PositiveInt | None = None

    @model_validator(mode="after")
    def _sound(self) -> PredictSpec:
        if self.partition_by and self.output_format != "parquet":
            raise ValueError(f"partition_by goes with output_format='parquet', not {self.output_format!r}")
        return self
