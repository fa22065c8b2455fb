"""The spec of the prediction job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import PositiveInt, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from trainyard.schemas.references import Reference, find_results, refer_to_model
from trainyard.schemas.results import PredictionsResult
from trainyard.schemas.specs.fields import AppliedModel, ImportPath, Name, Output, Params
from trainyard.schemas.specs.source import ReadsSources, refuse_overlap
from trainyard.schemas.validation.complaints import NOT_GIVEN

PATTERN_CHARACTERS = "[]{}*?\\"
"""Characters of a path that Spark does not take as they are when it reads Parquet."""


class PredictSpec(ReadsSources):
    """Apply a model to a source, and write keys and outputs."""

    KIND: ClassVar[str] = "predict spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.predict:run"
    RESULT = PredictionsResult

    model: AppliedModel
    """The model: a name below the storage root, a URI, or `train.output`, which also sets the version; `NAME@1a2b` is
    the version whose weights have a sha256 that begins so. By default the newest."""
    prepare: ImportPath | None = None
    """`module:function` that shapes the source as it did for the export. None uses the source as it is."""
    prepare_params: Params = {}
    """Keyword arguments of `prepare`."""
    keys: tuple[str, ...] = ()
    """Columns that are written beside the outputs. By default all that the model does not read."""
    postprocess: ImportPath | None = None
    """`module:function`, called as `postprocess(spark, predictions, **postprocess_params)`, that returns what is
    written."""
    postprocess_params: Params = {}
    """Keyword arguments of `postprocess`."""
    output_format: Literal["parquet", "trainyard", "table"] = "parquet"
    """`parquet`, `trainyard` (a dataset), or `table` (of Spark's catalog)."""
    output: Output
    """Where predictions are written: a name below the storage root, a URI, or the name of a table. By default
    `DAG_ID/TASK_ID`, with the index of a mapped task; a table needs a name."""
    partition_by: Name | None = None
    """A column that the source is partitioned by. Only partitions are predicted that are new, that changed, or that
    other weights predicted; each is replaced as a whole."""
    rows_per_batch: PositiveInt | None = None
    """Rows that are scored at once. By default the fastest number is found by trying."""

    @field_validator("output")
    @classmethod
    def _check_output(cls, output: str, fields: ValidationInfo) -> str:
        output_format = fields.data.get("output_format")
        if output_format == "table" and "/" in output and "`" not in output:
            raise ValueError("it is not the name of a table; write one such as 'sales.predictions'")
        if output_format != "table":
            refuse_overlap(output, fields.data, "output")
        if output_format == "parquet" and (found := next((c for c in output if c in PATTERN_CHARACTERS), None)):
            raise ValueError(f"Spark reads {found!r} as part of a pattern; use a path without {PATTERN_CHARACTERS}")
        return output

    @model_validator(mode="after")
    def _check_consistency(self) -> PredictSpec:
        if self.partition_by and self.output_format != "parquet":
            raise ValueError(f"partition_by goes with output_format='parquet', not {self.output_format!r}")
        if self.partition_by and self.sources:
            raise ValueError("partition_by goes with one source, whose folders are the partitions, not with sources")
        if self.sources and not self.prepare:
            raise PydanticCustomError(NOT_GIVEN, "sources need prepare=, which makes one DataFrame of them")
        return self

    def references(self) -> Iterator[Reference]:
        """Yield the model, and what the source and the parameters name."""
        yield refer_to_model(self.model)
        yield from super().references()
        yield from find_results([self.prepare_params, self.postprocess_params])
