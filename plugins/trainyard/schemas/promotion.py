"""The promotion record: why a model is the champion."""

from __future__ import annotations

from typing import ClassVar

from trainyard.schemas.document import Document, Part


class Rule(Part):
    """A model is promoted when its `metric` is better than the champion's by more than `margin`.

    With `confident` the whole interval of the difference must be, else the difference itself. Metrics in `required`
    must be as good as said there, also when there is no champion yet.
    """

    metric: str
    margin: float = 0.0
    confident: bool = True
    required: dict[str, float] = {}


class Promotion(Document):
    """Why a model is the champion."""

    KIND: ClassVar[str] = "promotion"

    model: str
    evaluation: str
    rule: Rule
    why: str
    promoted_at: str
