"""The evaluation of a model, and of baselines on the same rows.

MODEL/CONTENT_HASH/evaluations/SPLIT-DATASET_HASH-QUESTION_HASH.json   beside the evaluated weights
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, ClassVar, Self

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.schemas.document import Document, Part
from trainyard.schemas.references import Reference
from trainyard.schemas.types import ApplicationId, Digest, SplitName

Interval = tuple[float, float]
Metrics = dict[str, Any]
"""Metric -> value, None where it has none. The confusion matrix is a list of rows: entry [i][j] counts the rows of
class i that were predicted as class j; with several labels it is a list of such matrices. Those of a head of the
model are named `HEAD/NAME`."""


class Slice(Part):
    """The rows with one value of a column."""

    column: str
    value: str
    rows: int
    metrics: Metrics
    intervals: dict[str, Interval]


class Difference(Part):
    """By how much the model's metric exceeds the baseline's, with its interval over the same resamples of rows."""

    value: float | None
    interval: Interval | None


class Scores(Part):
    """The metrics of one model."""

    uri: str
    weights_sha256: Digest
    metrics: Metrics
    intervals: dict[str, Interval]
    slices: tuple[Slice, ...] = ()

    @property
    def numbers(self) -> Metrics:
        """The metrics that are one number, or None: without matrices and values for each class."""
        return {name: value for name, value in self.metrics.items() if isinstance(value, int | float | None)}


class Baseline(Scores):
    """The metrics of a baseline, and by how much the model exceeds them."""

    differences: dict[str, Difference]


class Example(Part):
    """A row with a large loss: its label, the prediction, and its scalar columns."""

    loss: float
    label: Any
    prediction: dict[str, Any]
    row: dict[str, Any]


class Evaluation(Document):
    """`model` on the split `split` of a dataset, with intervals at `confidence`, and `baselines` on the same rows.

    `warnings` has a sentence if the model is worse than always giving the most frequent class, or the mean label.
    """

    KIND: ClassVar[str] = "evaluation"
    MAX_BYTES: ClassVar[int] = 64 << 20

    model: Scores
    baselines: tuple[Baseline, ...] = ()
    dataset: str
    dataset_hash: Digest
    dataset_version: int
    split: SplitName
    rows: int
    confidence: float
    query: str | None = None
    curves: dict[str, list[list[float]]] = {}
    examples: tuple[Example, ...] = ()
    classes: tuple[str, ...] = ()
    """The names of the classes, in the order of confusion matrices and of metrics by class; empty if they have none."""
    head_classes: dict[str, tuple[str, ...]] = {}
    """The same by head, of a model with heads."""
    warnings: tuple[str, ...] = ()
    application: ApplicationId

    @property
    def uri(self) -> str:
        """The URI of this document: another one for other metrics, slices or baselines on the same rows."""
        asked = [
            sorted(self.model.metrics), sorted({part.column for part in self.model.slices}), self.query,
            self.confidence, [(baseline.uri, baseline.weights_sha256) for baseline in self.baselines],
        ]  # fmt: skip
        digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()
        name = f"{self.split}-{self.dataset_hash[:16]}-{digest[:8]}.json"
        return uris.join(self.model.uri, self.model.weights_sha256[:16], "evaluations", name)

    def place(self, uri: str) -> Self:
        """Return the document as one that lies at `MODEL/WEIGHTS/evaluations/NAME`.

        Raises:
            TrainyardError: It is of other weights.
        """
        model, weights, *_ = uri.rsplit("/", 3)
        if weights != self.model.weights_sha256[:16]:
            raise TrainyardError(
                f"{uri} evaluates the weights {self.model.weights_sha256[:16]}, but lies beside {weights}."
            )
        return self.model_copy(update={"model": self.model.model_copy(update={"uri": model})})

    def references(self) -> Iterator[Reference]:
        """Yield the models, and the version of the dataset."""
        yield Reference(self.dataset, self.dataset_version)
        for scores in (self.model, *self.baselines):
            yield Reference(scores.uri, scores.weights_sha256)

    def save(self) -> None:
        """Store the evaluation beside the weights."""
        storage.replace(self.uri, self.to_json().encode())
