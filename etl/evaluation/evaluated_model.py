"""A model that is evaluated, with the families of metrics for its output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainyard.errors import TrainyardError
from trainyard.etl.metrics import build_families
from trainyard.etl.metrics.family import Link, MetricFamily, OutputSpec
from trainyard.etl.metrics.rows import RowCount
from trainyard.etl.metrics.scores import ModelMetrics
from trainyard.etl.scoring import inputs
from trainyard.schemas import model_artifact
from trainyard.schemas.evaluation import Scores
from trainyard.schemas.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact
from trainyard.trainer.model import losses
from trainyard.trainer.model.recipe import Recipe
from trainyard.trainer.model.trained_model import TrainedModel, restore_model


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

    @classmethod
    def load(cls, uri: str, metrics: Sequence[str], weights: Mapping[str, str]) -> EvaluatedModel:
        """Load a model's artifact, with its newest weights or those in `weights`, and choose how to compute `metrics`.

        Raises:
            TrainyardError: The model has no label that metrics can compare, or a metric does not apply to it.
        """
        artifact = model_artifact.read(uri, weights)
        if artifact.label is None:
            raise TrainyardError(f"the model {uri} was trained without a label, so its output cannot be evaluated.")
        model = restore_model(uri, artifact)
        if artifact.label.kind == "list" or artifact.label.name in model.recipe.decode:
            raise TrainyardError(
                f"the label {artifact.label.name!r} of {uri} is neither a number nor a tensor, so metrics cannot "
                "compare it."
            )
        spec = _build_output_spec(model.recipe, _find_output_shape(uri, model), artifact.label)
        return cls(uri, artifact.to_json(), artifact.label, (RowCount(), *build_families(metrics, spec)))

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


def _find_output_shape(uri: str, model: TrainedModel) -> tuple[int, ...]:
    """Return the shape of one row's output.

    Raises:
        TrainyardError: The output is not a tensor of rows, or its shape depends on the length of the rows.
    """
    from torch import Tensor

    outputs = [model.output(rows) for rows in inputs.build_samples(model.artifact.inputs)]
    for output in outputs:
        if not isinstance(output, Tensor) or output.shape[:1] != (2,):
            kind = f"tensor of shape {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
            raise TrainyardError(
                f"the network of {uri} returns a {kind} for 2 rows, which metrics cannot compare with labels; return a "
                "tensor of shape (rows, ...) from its forward."
            )
    if outputs[0].shape != outputs[-1].shape:
        raise TrainyardError(
            f"the network of {uri} returns a value for each element of a variable-length row, which metrics cannot "
            "compare with a label of one shape; return as many values for each row from its forward."
        )
    return tuple(outputs[0].shape[1:])


def _build_output_spec(recipe: Recipe, output: tuple[int, ...], label: Column) -> OutputSpec:
    """Return what the output is according to the recipe's loss: logits, unless that is NLLLoss or BCELoss."""
    classes = recipe.classes or (2 if losses.is_any(recipe.loss, losses.BINARY) else None)
    link: Link = "sigmoid" if label.shape or output in ((), (1,)) else "softmax"
    if losses.is_any(recipe.loss, losses.NEGATIVE_LOG_LIKELIHOOD):
        link = "exp"
    elif losses.is_any(recipe.loss, losses.BINARY_OF_PROBABILITIES):
        link = "none"
    return OutputSpec(output, label.shape, classes, link, losses.get_ignored_label(recipe.loss))
