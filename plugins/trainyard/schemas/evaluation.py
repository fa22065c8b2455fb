"""The evaluation: what a model, and others beside it, made of the same rows.

MODEL/CONTENT_HASH/evaluations/SPLIT-DATASET_HASH.json   beside the weights it is about
"""

from __future__ import annotations

from typing import Any, ClassVar

from trainyard import storage
from trainyard.schemas.document import Document, Part

Interval = tuple[float, float]
Metrics = dict[str, Any]
"""A number a metric, None where it has no value. The confusion matrix is a list of rows: entry [i][j] counts the rows
of class i that were taken for class j; of several labels it is a list of such matrices."""


class Slice(Part):
    """The rows with one value of a column."""

    column: str
    value: str
    rows: int
    metrics: Metrics
    intervals: dict[str, Interval]


class Difference(Part):
    """By how much the model's metric is above the other's, with its interval over the same draws of rows."""

    value: float | None
    interval: Interval | None


class Scores(Part):
    """What one model made of the rows."""

    uri: str
    weights_sha256: str
    metrics: Metrics
    intervals: dict[str, Interval]
    slices: tuple[Slice, ...] = ()


class Baseline(Scores):
    """A model beside, and how far the model is above it."""

    differences: dict[str, Difference]


class Example(Part):
    """A row that the model did badly on: its label, what was predicted, and its columns that are single values."""

    loss: float
    label: Any
    prediction: dict[str, Any]
    row: dict[str, Any]


class Evaluation(Document):
    """`model` on the split `split` of a dataset, with intervals at `confidence`, and `baselines` on the same rows."""

    KIND: ClassVar[str] = "evaluation"

    model: Scores
    baselines: tuple[Baseline, ...] = ()
    dataset: str
    dataset_hash: str
    dataset_version: int
    split: str
    rows: int
    confidence: float
    curves: dict[str, list[list[float]]] = {}
    examples: tuple[Example, ...] = ()
    application: str

    @property
    def uri(self) -> str:
        """Where it lies."""
        name = f"{self.split}-{self.dataset_hash[:16]}.json"
        return storage.join(self.model.uri, self.model.weights_sha256[:16], "evaluations", name)

    def save(self) -> None:
        storage.replace(self.uri, self.to_json().encode())

    def summary(self) -> dict[str, Any]:
        """What an XCom carries of it, with the model's own `uri` and the document's as `evaluation`."""
        dumped = self.model_dump(mode="json", exclude={"model", "baselines", "curves", "examples"})
        of_model = self.model.model_dump(mode="json", exclude={"slices"})
        others = [other.model_dump(mode="json", exclude={"slices"}) for other in self.baselines]
        return {**of_model, **dumped, "baselines": others, "evaluation": self.uri}
