"""A model that is evaluated, as the driver and the tasks share it."""

from __future__ import annotations

from dataclasses import dataclass

from trainyard.etl.metrics.family import MetricFamily
from trainyard.etl.metrics.scores import ModelMetrics
from trainyard.schemas.evaluation import Scores
from trainyard.schemas.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact


@dataclass(frozen=True)
class EvaluatedModel:
    """A model on its way to the tasks.

    Attributes:
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`.
        label: Its label. Models that are compared may differ in the type of the label.
        families: The families of metrics, of which the first counts rows.
    """

    uri: str
    document: str
    label: Column
    families: tuple[MetricFamily, ...]

    @property
    def artifact(self) -> ModelArtifact:
        """The model's artifact."""
        return ModelArtifact.from_json(self.document, origin=self.uri)

    def build_scores(self, metrics: ModelMetrics) -> Scores:
        """Return the model's entry in an evaluation."""
        return Scores(
            uri=self.uri, weights_sha256=self.artifact.weights_sha256, metrics=metrics.metrics,
            intervals=metrics.intervals, slices=metrics.slices,
        )  # fmt: skip
