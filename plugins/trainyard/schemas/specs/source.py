"""What an export reads, and what its data must satisfy."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from trainyard.schemas.document import Part
from trainyard.schemas.secrets import REDACTED, REMEDY, find_secrets
from trainyard.schemas.specs.fields import as_texts


class Source(Part):
    """What Spark reads: a format of `spark.read`, its options, and a path for formats that have one."""

    format: str
    path: str | None = None
    options: dict[str, str] = {}

    @model_validator(mode="after")
    def _refuse_secrets(self) -> Source:
        if secrets := find_secrets(self.options.items()):
            message = f"options has {', '.join(secrets)}, and {REMEDY}; `prepare` can read it from there"
            raise PydanticCustomError(REDACTED, message)
        return self


class Expectation(Part):
    """Checks of a column, in each split.

    Attributes:
        min: The smallest value.
        max: The largest value.
        nulls: The largest fraction of nulls.
        values: The only values.
        rows_per_value: The fewest rows of each value: of those in `values`, or else of those that occur.
    """

    min: float | None = None
    max: float | None = None
    nulls: Annotated[float, Field(ge=0, le=1)] | None = None
    values: Annotated[tuple[str, ...], BeforeValidator(as_texts)] | None = None
    rows_per_value: PositiveInt | None = None

    @model_validator(mode="after")
    def _check_bounds(self) -> Expectation:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min={self.min:g} is above max={self.max:g}")
        return self


class Drift(Part):
    """Limits on the population stability index between a column and the same column of the previous version.

    A column that reaches `warn` causes a warning, one that reaches `fail` fails the export.
    """

    warn: PositiveFloat = 0.1
    fail: PositiveFloat | None = None
