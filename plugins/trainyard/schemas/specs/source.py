"""What an export reads, and what its data must satisfy."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from trainyard.schemas.document import Part
from trainyard.schemas.secrets import INSTEAD, REDACTED, secrets_in
from trainyard.schemas.specs.fields import _texts


class Source(Part):
    """What Spark reads: a format of `spark.read`, its options, and a path for those that have one."""

    format: str
    path: str | None = None
    options: dict[str, str] = {}

    @model_validator(mode="after")
    def _discreet(self) -> Source:
        if found := secrets_in(self.options.items()):
            told = f"options has {', '.join(found)}, and {INSTEAD}; `prepare` can read it from there"
            raise PydanticCustomError(REDACTED, told)
        return self


class Expectation(Part):
    """What is expected of a column, in each split.

    Bounds of its numbers, the largest fraction of nulls, the only values, and the least rows of each value (of
    those in `values`, or of those that occur).
    """

    min: float | None = None
    max: float | None = None
    nulls: Annotated[float, Field(ge=0, le=1)] | None = None
    values: Annotated[tuple[str, ...], BeforeValidator(_texts)] | None = None
    rows_per_value: PositiveInt | None = None

    @model_validator(mode="after")
    def _sound(self) -> Expectation:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min={self.min:g} is above max={self.max:g}")
        return self


class Drift(Part):
    """How far a column may drift from the version before, as a population stability index.

    From `warn` on there is a warning, from `fail` on the export fails.
    """

    warn: PositiveFloat = 0.1
    fail: PositiveFloat | None = None
