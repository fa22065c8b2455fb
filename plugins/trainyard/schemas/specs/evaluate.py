"""The spec of the evaluation job."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeInt, PositiveInt

from trainyard.schemas.specs.fields import Metric
from trainyard.schemas.specs.job import JobSpec


class EvaluateSpec(JobSpec):
    """Score `model`, and `baselines`, on one split of `dataset`, in their newest version or another.

    Metrics are of all rows, and of each value of the columns `slices`. Metrics of ranking rank the rows of each value
    of `query`. `examples` rows on which the model does worst are kept, `rows_per_batch` is found if it is not given.
    """

    KIND: ClassVar[str] = "evaluate spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.evaluate:run"

    model: str
    dataset: str
    dataset_version: PositiveInt | None = None
    baselines: tuple[str, ...] = ()
    split: str = "test"
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)]
    slices: tuple[str, ...] = ()
    query: str | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    examples: NonNegativeInt = 10
    rows_per_batch: PositiveInt | None = None
