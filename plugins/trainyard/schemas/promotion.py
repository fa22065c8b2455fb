"""The promotion record: why a model is the champion."""

from __future__ import annotations

from typing import ClassVar

from trainyard.schemas.document import Document, Part


class Rule(Part):
    """Promote a model if its `metric` is better than the champion's by more than `margin`.

    With `confident` the whole interval of the difference must exceed the margin, else the difference itself. Metrics in
    `required` must reach their value, also when there is no champion yet.
    """

    metric: str
    margin: float = 0.0
    confident: bool = True
    required: dict[str, float] = {}


class Promotion(Document):
    """Why, when and by which rule a model became the champion."""

    KIND: ClassVar[str] = "promotion"

    model: str
    evaluation: str
    rule: Rule
    why: str
    promoted_at: str
