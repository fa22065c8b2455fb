"""Featurize: write a dataset of the activations of a network's layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.options import default
from trainyard.operators.dataset_writer import DatasetOperator
from trainyard.schemas.specs.export import FeaturizeSpec


class FeaturizeOperator(DatasetOperator):
    """Run a trained network up to a layer with Spark, and write its outputs as a dataset of features.

    Returns (XCom): as ExportOperator. `prepare` returns the columns that the model takes; the dataset has the features
    in their place, beside all other columns. All options of `DatasetOperator` apply. A run whose source, code, options
    and model are unchanged is skipped.

    Args:
        model: The model: a name below the storage root, a URI, or `train.output`, which also sets the weights.
        layer: The submodule whose output becomes the features, by its name in the model, for example "encoder.pool".
        features: The name of the feature column. It holds the layer's output, flattened, as float32.
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
        """Return the options as fields of the spec."""
        return super().spec_fields() | {"model": self.model, "layer": self.layer, "features": self.features}
