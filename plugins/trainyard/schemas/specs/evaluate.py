"""The spec of the evaluation job."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeInt, PositiveInt

from trainyard.schemas.references import Reference
from trainyard.schemas.results import EvaluationResult
from trainyard.schemas.specs.fields import Location, Metric, Name
from trainyard.schemas.specs.job import JobSpec


class EvaluateSpec(JobSpec):
    """Score a model and baselines on one split of a dataset.

    Attributes:
        model: The URI of the model.
        weights: The sha256 of the weights of the models, by their URIs. Of others the newest are scored.
        dataset: The URI of the dataset.
        dataset_version: The version of the dataset, by default the newest.
        baselines: The URIs of models that are scored on the same rows.
        split: The split.
        metrics: Metrics, computed over all rows and for each slice. By default those of the model's recipe.
        slices: Columns; each of their values is a slice.
        query: The column whose rows with one value are ranked together.
        confidence: The confidence of the intervals.
        examples: How many of the rows with the largest loss are kept.
        rows_per_batch: Rows scored at once; None finds the fastest number.
    """

    KIND: ClassVar[str] = "evaluate spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.evaluate:run"
    RESULT = EvaluationResult

    model: Location
    weights: dict[str, str] = {}
    dataset: Location
    dataset_version: PositiveInt | None = None
    baselines: tuple[Location, ...] = ()
    split: Name = "test"
    metrics: tuple[Metric, ...] = ()
    slices: tuple[str, ...] = ()
    query: Name | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    examples: NonNegativeInt = 10
    rows_per_batch: PositiveInt | None = None

    def references(self) -> Iterator[Reference]:
        """Yield the version of the dataset, and the models."""
        yield Reference(self.dataset, self.dataset_version)
        yield from itertools.starmap(Reference, self.weights.items())
