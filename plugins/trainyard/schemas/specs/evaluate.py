"""The spec of the evaluation job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field, NonNegativeInt, PositiveInt

from trainyard.schemas.references import Reference, refer_to_model
from trainyard.schemas.results import EvaluationResult
from trainyard.schemas.specs.fields import AppliedModel, Location, Metric, Name
from trainyard.schemas.specs.job import JobSpec


class EvaluateSpec(JobSpec):
    """Score a model and baselines on one split of a dataset."""

    KIND: ClassVar[str] = "evaluate spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.evaluate:run"
    RESULT = EvaluationResult

    model: AppliedModel
    """The model: a name below the storage root, a URI, or `train.output`, which also sets the version; `NAME@1a2b` is
    the version whose weights have a sha256 that begins so. By default the newest."""
    dataset: Location | None = None
    """The dataset: a name below the storage root, a URI, or `export.output`, which also sets the version. By default
    what the model was trained on."""
    dataset_version: PositiveInt | None = None
    """The version to score on. By default the newest; of the model's own dataset the one that it was trained on."""
    baselines: tuple[AppliedModel, ...] = ()
    """Other models that are scored on the same rows. One that does not exist is left out."""
    split: Name = "test"
    """The split to score."""
    metrics: tuple[Metric, ...] = ()
    """Names of metrics, or `module:function` for a function that returns a torchmetrics metric. By default the
    `metrics` of the model's recipe; those of them that are objects are named `recipe:NAME`, have no intervals and
    promote no model. Metrics of a head of the recipe are named `HEAD/NAME`."""
    slices: tuple[str, ...] = ()
    """Columns for whose values the metrics are also computed apart."""
    query: Name | None = None
    """The column whose rows with one value are ranked together, for ranking metrics."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """The confidence of the intervals, between 0 and 1."""
    examples: NonNegativeInt = 10
    """How many of the rows with the largest loss are kept."""
    rows_per_batch: PositiveInt | None = None
    """Rows that are scored at once. By default the fastest number is found by trying."""

    def references(self) -> Iterator[Reference]:
        """Yield the version of the dataset, and the models."""
        if self.dataset is not None:
            yield Reference(self.dataset, self.dataset_version)
        yield from map(refer_to_model, (self.model, *self.baselines))
