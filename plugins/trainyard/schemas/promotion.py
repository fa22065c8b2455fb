"""The promotion record: why a model is the champion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, FiniteFloat

from trainyard.schemas.document import Document, Part
from trainyard.schemas.references import Reference
from trainyard.schemas.specs import metrics
from trainyard.schemas.types import Digest


def _directed(name: str) -> str:
    if not metrics.is_known(name) or not metrics.sign(name):
        ordered = [other for other in (*metrics.CLASSIFICATION, *metrics.REGRESSION) if metrics.sign(other)]
        raise ValueError(
            "this metric has no known direction, so it cannot decide; write one of "
            f"{', '.join((*ordered, *metrics.RANKING))}; of a head, 'HEAD/accuracy'"
        )
    return name


def _by_metric(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError("write a dict of metrics and the values to reach, for example {'accuracy': 0.9}")
    return value


DirectedMetric = Annotated[str, AfterValidator(_directed)]
"""The name of a metric of which more, or less, is better."""


Bounds = Annotated[dict[DirectedMetric, FiniteFloat], BeforeValidator(_by_metric)]
"""Metric -> a value to reach."""


class Rule(Part):
    """Promote a model if its `metric` is better than the champion's by more than `margin`.

    With `confident` the whole interval of the difference must exceed the margin, else the difference itself. Metrics in
    `required` must reach their value, also when there is no champion yet; those in `required_of_slices` in each slice
    of the evaluation.
    """

    metric: DirectedMetric
    """The metric that decides."""
    margin: FiniteFloat = 0.0
    """By how much it must be better. A negative margin accepts a slightly worse model."""
    confident: bool = True
    """Whether the whole confidence interval of the difference must exceed the margin."""
    required: Bounds = {}
    """Metric -> the value it must reach (for errors: not exceed), whatever the champion's is."""
    required_of_slices: Bounds = {}
    """The same for each slice of the evaluation (`slices=` of EvaluateOperator) in which the metric has a value."""
    slice_tolerance: Annotated[FiniteFloat, Field(ge=0)] | None = None
    """By how much `metric` may be worse than the champion's in a slice, with 0 in none. None compares no slices. It is
    compared without intervals, so that a slice of few rows decides by chance."""


class Promotion(Document):
    """Why, when and by which rule a model became the champion."""

    KIND: ClassVar[str] = "promotion"

    model: str
    """The URI of the model."""
    weights_sha256: Digest | Literal[""] = ""
    """The sha256 of its weights, "" in a promotion of an earlier release."""
    evaluation: str
    """The URI of the evaluation that decided."""
    rule: Rule
    """What the model had to reach."""
    why: str
    """The reason."""
    promoted_at: str
    """When, ISO 8601."""

    def references(self) -> Iterator[Reference]:
        """Yield the model, and the one that the evaluation lies beside: a release may not have stored its weights."""
        yield Reference(self.model, self.weights_sha256)
        model, _, weights = self.evaluation.partition("/evaluations/")[0].rpartition("/")
        yield Reference(model, weights)
