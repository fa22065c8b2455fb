"""The spec of the prediction job."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator, model_validator

from trainyard.schemas.references import Reference, find_results
from trainyard.schemas.results import PredictionsResult
from trainyard.schemas.specs.fields import ImportPath, Location, Name, Params
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.source import Source, refuse_overlap

PATTERN_CHARACTERS = "[]{}*?\\"
"""Characters of a path that Spark does not take as they are when it reads Parquet."""


class PredictSpec(JobSpec):
    """Apply a model to a source, and write keys and outputs.

    Attributes:
        model: The URI of the model.
        weights: The sha256 of the weights of the model, by its URI. By default its newest.
        source: What Spark reads.
        prepare: The user's function that shapes the source, `module:function`.
        prepare_params: Its keyword arguments.
        keys: Columns that are written beside the outputs.
        postprocess: The user's function that changes what is written, `module:function`.
        postprocess_params: Its keyword arguments.
        output_format: The format of the output.
        output: A URI, or the name of a table.
        partition_by: A column of the source. Only partitions are predicted that are new, that changed, or that other
            weights predicted.
        rows_per_batch: Rows scored at once; None finds the fastest number.
    """

    KIND: ClassVar[str] = "predict spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.predict:run"
    RESULT = PredictionsResult

    model: Location
    weights: dict[str, str] = {}
    source: Source
    prepare: ImportPath | None = None
    prepare_params: Params = {}
    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    postprocess: ImportPath | None = None
    postprocess_params: Params = {}
    output_format: Literal["parquet", "trainyard", "table"] = "parquet"
    output: Location
    partition_by: Name | None = None
    rows_per_batch: PositiveInt | None = None

    @field_validator("output")
    @classmethod
    def _check_output(cls, output: str, fields: ValidationInfo) -> str:
        output_format = fields.data.get("output_format")
        if output_format != "table":
            refuse_overlap(output, fields.data.get("source"), "output")
        if output_format == "parquet" and (found := next((c for c in output if c in PATTERN_CHARACTERS), None)):
            raise ValueError(f"Spark reads {found!r} as part of a pattern; use a path without {PATTERN_CHARACTERS}")
        return output

    @model_validator(mode="after")
    def _check_consistency(self) -> PredictSpec:
        if self.partition_by and self.output_format != "parquet":
            raise ValueError(f"partition_by goes with output_format='parquet', not {self.output_format!r}")
        return self

    def references(self) -> Iterator[Reference]:
        """Yield the model, and what the source and the parameters name."""
        yield from itertools.starmap(Reference, self.weights.items())
        yield from self.source.references()
        yield from find_results([self.prepare_params, self.postprocess_params])
