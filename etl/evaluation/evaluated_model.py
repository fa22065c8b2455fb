"""A model that is evaluated, as the driver and the tasks share it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainyard.etl.metrics.family import MetricFamily
from trainyard.etl.metrics.scores import ModelMetrics
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.evaluation import Difference, Interval, Metrics, Scores, Slice
from trainyard.schemas.model_artifact import ModelArtifact


@dataclass(frozen=True)
class EvaluatedModel:
    """A model, or one of its heads, on its way to the tasks.

    Attributes:
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`.
        head: The name of the head; empty for a model without heads.
        label: Its label. Models that are compared may differ in the type of the label.
        families: The families of metrics, of which the first counts rows.
    """

    uri: str
    document: str
    head: str
    label: Column
    families: tuple[MetricFamily, ...]

    @property
    def artifact(self) -> ModelArtifact:
        """The model's artifact."""
        return ModelArtifact.from_json(self.document, origin=self.uri)


def build_scores(model: EvaluatedModel, heads: Sequence[ModelMetrics]) -> Scores:
    """Return a model's entry in an evaluation, from the metrics of its heads."""
    metrics: Metrics = {}
    intervals: dict[str, Interval] = {}
    for head in heads:
        metrics, intervals = metrics | head.metrics, intervals | head.intervals
    return Scores(
        uri=model.uri, weights_sha256=model.artifact.weights_sha256, metrics=metrics, intervals=intervals,
        slices=tuple(map(_merge_slice, zip(*(head.slices for head in heads), strict=True))),
    )  # fmt: skip


def compute_differences(heads: Sequence[ModelMetrics], others: Sequence[ModelMetrics]) -> dict[str, Difference]:
    """Return by how much the metrics of a model's heads exceed those of another model."""
    differences: dict[str, Difference] = {}
    for head, other in zip(heads, others, strict=True):
        differences |= head.compute_differences(other)
    return differences


def _merge_slice(of_heads: Sequence[Slice]) -> Slice:
    """Return one slice with the metrics of all heads."""
    metrics: Metrics = {}
    intervals: dict[str, Interval] = {}
    for part in of_heads:
        metrics, intervals = metrics | part.metrics, intervals | part.intervals
    return of_heads[0].model_copy(update={"metrics": metrics, "intervals": intervals})
