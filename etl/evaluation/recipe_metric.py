"""The metrics of a model's recipe, as an evaluation computes them."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING

from trainyard.etl.metrics import torchmetrics_states
from trainyard.etl.metrics.custom import CustomMetric, check_family
from trainyard.schemas.model_artifact import ModelArtifact

if TYPE_CHECKING:
    from torchmetrics import Metric


def build_recipe_families(uri: str, document: str, head: str) -> list[CustomMetric]:
    """Return the families of the metrics of a head of a model's recipe.

    Args:
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`.
        head: The name of the head; empty for a recipe without heads.

    Raises:
        TrainyardError: The value of a metric does not follow from states that are sums.
    """
    from trainyard.etl.scoring import worker_model

    names = worker_model.load_model(uri, document).recipe.heads_by_name[head].metrics_by_name
    return [check_family(RecipeMetric(uri, document, head, name)) for name in names]


class RecipeMetric(CustomMetric):
    """The family of a metric of a recipe's head, named `recipe:NAME`."""

    def __init__(self, uri: str, document: str, head: str, name: str) -> None:
        super().__init__(f"recipe:{name}")
        self._uri, self._document, self._head, self._name = uri, document, head, name

    def __reduce__(self) -> tuple[type[RecipeMetric], tuple[str, str, str, str]]:  # type: ignore[override]
        return RecipeMetric, (self._uri, self._document, self._head, self._name)

    @cached_property
    def metric(self) -> Metric:
        """A copy of the metric of the recipe, created in each process."""
        from trainyard.trainer.model import recipe

        artifact = ModelArtifact.from_json(self._document, origin=self._uri)
        head = recipe.load(artifact.recipe, artifact.recipe_params).heads_by_name[self._head]
        metric = deepcopy(head.metrics_by_name[self._name])
        torchmetrics_states.use_float64(metric)
        return metric
