"""Featurize: Spark runs a network up to a layer over rows, the result is a batch dataset of features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.contract.spec import FeaturizeSpec
from trainyard.operators.exporting import ExportingOperator
from trainyard.operators.options import default
from trainyard.sizing import Memory


class FeaturizeOperator(ExportingOperator):
    """Writes a batch dataset of features, which is trained on as any other. Returns its `uri`, `content_hash`, rows.

    What `prepare` returns has the columns that the model takes; in their place the dataset has the features, beside the
    other columns. All options of ExportOperator are options of this one, and it runs only when something has changed,
    the model among it.

    :param model: whose network is run: a name below the storage root, an absolute URI, or `train.output`
    :param layer: up to which submodule, by its name in the model, such as "5" or "encoder.pool"
    :param features: the column of the features: the layer's output, flattened
    """

    SPEC = FeaturizeSpec
    PLACES = ("batches", "model")
    MODULES = (*ExportingOperator.MODULES, "torch")
    MEMORY = Memory(heap="1g", native="1536m")
    DRIVER_MEMORY = Memory(heap="1g", native="1536m")

    template_fields: ClassVar[Sequence[str]] = ("model", "layer", "features", *ExportingOperator.template_fields)

    def __init__(
        self, *, model: Any, layer: str, features: str = default(FeaturizeSpec, "features"), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.layer = layer
        self.features = features
        self.refuse_bad_input()

    def _fields(self) -> dict[str, Any]:
        return super()._fields() | {"model": self.model, "layer": self.layer, "features": self.features}
