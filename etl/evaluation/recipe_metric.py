"""The metrics of a model's recipe, as an evaluation computes them."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING

from trainyard.errors import TrainyardError
from trainyard.etl.metrics import torchmetrics_states
from trainyard.etl.metrics.custom import CustomMetric, check_family
from trainyard.schemas.model_artifact import ModelArtifact

if TYPE_CHECKING:
    from torchmetrics import Metric


def build_recipe_families(uri: str, document: str) -> list[CustomMetric]:
    """Return the families of the metrics of a model's recipe.

    Args:
        uri: The URI of the model.
        document: The JSON of its `ModelArtifact`.

    Raises:
        TrainyardError: The recipe has none, or one whose value does not follow from states that are sums.
    """
    from trainyard.etl.scoring import worker_model

    names = worker_model.load_model(uri, document).recipe.metrics_by_name
    if not names:
        raise TrainyardError(
            f"the recipe of {uri} has no metrics, and metrics= names none; write, for example, metrics=['accuracy'] or "
            "metrics=['rmse']."
        )
    return [check_family(RecipeMetric(uri, document, name)) for name in names]


class RecipeMetric(CustomMetric):
    """The family of a metric of a recipe, named `recipe:NAME`."""

    def __init__(self, uri: str, document: str, name: str) -> None:
        super().__init__(f"recipe:{name}")
        self._uri, self._document, self._name = uri, document, name

    def __reduce__(self) -> tuple[type[RecipeMetric], tuple[str, str, str]]:  # type: ignore[override]
        return RecipeMetric, (self._uri, self._document, self._name)

    @cached_property
    def metric(self) -> Metric:
        """A copy of the metric of the recipe, created in each process."""
        from trainyard.trainer.model import recipe

        artifact = ModelArtifact.from_json(self._document, origin=self._uri)
        metric = deepcopy(recipe.load(artifact.recipe, artifact.recipe_params).metrics_by_name[self._name])
        torchmetrics_states.use_float64(metric)
        return metric
