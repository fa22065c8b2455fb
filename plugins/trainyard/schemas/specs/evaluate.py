"""The spec of the evaluation job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from trainyard.schemas.references import Reference, refer_to_model
from trainyard.schemas.results import EvaluationResult, EvaluationsResult, Result
from trainyard.schemas.specs.fields import AppliedModel, Location, Metric, Name
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.validation.complaints import NOT_GIVEN


class EvaluateSpec(JobSpec):
    """Score a model, or several, and baselines on one split of a dataset."""

    KIND: ClassVar[str] = "evaluate spec"
    ENTRY: ClassVar[str] = "trainyard.etl.jobs.evaluate:run"
    RESULT = EvaluationResult

    model: AppliedModel | None = None
    """The model: a name below the storage root, a URI, or `train.output`, which also sets the version; `NAME@1a2b` is
    the version whose weights have a sha256 that begins so. By default the newest."""
    models: tuple[AppliedModel, ...] = ()
    """Several models in place of `model`, each evaluated on the same rows and compared with all `baselines`: names,
    URIs, results of trainings, or `train.output` of a mapped one."""
    dataset: Location | None = None
    """The dataset: a name below the storage root, a URI, or `export.output`, which also sets the version. By default
    what the model was trained on; several must have been trained on the same version."""
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

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        if self.model is None and not self.models:
            raise PydanticCustomError(NOT_GIVEN, "model is missing; write one, or several as models=")
        if self.model is not None and self.models:
            raise ValueError("model and models exclude each other; remove one of them")
        return self

    @property
    def evaluated(self) -> tuple[str, ...]:
        """The models that are evaluated, each once."""
        return tuple(dict.fromkeys(self.models)) if self.model is None else (self.model,)

    def references(self) -> Iterator[Reference]:
        """Yield the version of the dataset, and the models."""
        if self.dataset is not None:
            yield Reference(self.dataset, self.dataset_version)
        yield from map(refer_to_model, (*self.evaluated, *self.baselines))

    @classmethod
    def parse_result(cls, value: Any) -> Result:
        """Parse what the job has returned for one model, or for several."""
        several = isinstance(value, EvaluationsResult) or (isinstance(value, Mapping) and "evaluations" in value)
        return EvaluationsResult.model_validate(value) if several else super().parse_result(value)
