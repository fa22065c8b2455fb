"""Featurize: Spark runs a network up to a layer over rows, the result is a dataset of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.options import default
from trainyard.operators.dataset_writer import DatasetOperator
from trainyard.schemas.specs.export import FeaturizeSpec


class FeaturizeOperator(DatasetOperator):
    """Writes a dataset of features, which is trained on as any other. Returns its `uri`, `content_hash`, rows.

    What `prepare` returns has the columns that the model takes; in their place the dataset has the features, beside the
    other columns. All options of ExportOperator are options of this one, and it runs only when something has changed,
    the model among it.

    :param model: whose network is run: a name below the storage root, an absolute URI, or `train.output`
    :param layer: up to which submodule, by its name in the model, such as "5" or "encoder.pool"
    :param features: the column of the features: the layer's output, flattened
    """

    SPEC = FeaturizeSpec
    STORAGE_OPTIONS = ("dataset", "model")
    REQUIREMENTS = requirements.FEATURIZE

    template_fields: ClassVar[Sequence[str]] = ("model", "layer", "features", *DatasetOperator.template_fields)

    def __init__(
        self, *, model: Any, layer: str, features: str = default(FeaturizeSpec, "features"), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.layer = layer
        self.features = features
        self.validate_options()

    def spec_fields(self) -> dict[str, Any]:
        return super().spec_fields() | {"model": self.model, "layer": self.layer, "features": self.features}
