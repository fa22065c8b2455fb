"""The spec of the prediction job."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator, model_validator

from trainyard.schemas.specs.fields import ImportPath, Location, Name, Params
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.source import Source


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
        source = fields.data.get("source")
        path = source.path if source else None
        if path and fields.data.get("output_format") != "table" and _overlap(output, path):
            raise ValueError(f"it is the source {path!r}, contains it or lies inside it; write another output")
        return output

    @model_validator(mode="after")
    def _check_consistency(self) -> PredictSpec:
        if self.partition_by and self.output_format != "parquet":
            raise ValueError(f"partition_by goes with output_format='parquet', not {self.output_format!r}")
        return self


def _overlap(output: str, source: str) -> bool:
    """Return whether one of two paths is the other one or lies inside it; the source may be a pattern of paths."""
    scheme, host, path = _divide(output)
    source_scheme, source_host, source_path = _divide(source)
    if scheme != source_scheme or (host and source_host and host != source_host):
        return False
    top = PurePosixPath(*path.parts[: len(source_path.parts)])
    return (
        source_path.is_relative_to(path) or path.is_relative_to(source_path) or fnmatchcase(str(top), str(source_path))
    )


def _divide(location: str) -> tuple[str, str, PurePosixPath]:
    """Return the scheme, the host and the path of a location. A host that is missing is that of the cluster."""
    scheme, separator, rest = location.partition("://")
    if not separator and not location.startswith("/"):
        return "", "", PurePosixPath(location)
    host, _, path = (rest if separator else location).partition("/")
    return scheme if separator else "file", host, PurePosixPath("/", path.lstrip("/"))
