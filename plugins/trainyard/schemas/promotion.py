"""The promotion record: why a model is the champion."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator

from trainyard.schemas.document import Document, Part
from trainyard.schemas.specs import metrics


def _directed(name: str) -> str:
    if not metrics.is_known(name) or not metrics.sign(name):
        ordered = [other for other in (*metrics.CLASSIFICATION, *metrics.REGRESSION) if metrics.sign(other)]
        raise ValueError(
            "this metric has no known direction, so it cannot decide; write one of "
            f"{', '.join((*ordered, *metrics.RANKING))}"
        )
    return name


DirectedMetric = Annotated[str, AfterValidator(_directed)]
"""The name of a metric of which more, or less, is better."""


class Rule(Part):
    """Promote a model if its `metric` is better than the champion's by more than `margin`.

    With `confident` the whole interval of the difference must exceed the margin, else the difference itself. Metrics in
    `required` must reach their value, also when there is no champion yet.
    """

    metric: DirectedMetric
    margin: float = 0.0
    confident: bool = True
    required: dict[DirectedMetric, float] = {}


class Promotion(Document):
    """Why, when and by which rule a model became the champion."""

    KIND: ClassVar[str] = "promotion"

    model: str
    evaluation: str
    rule: Rule
    why: str
    promoted_at: str
