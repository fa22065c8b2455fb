"""Featurize: write a dataset of the activations of a network's layer."""

from __future__ import annotations

from typing import Any

from trainyard.jobs.options import requirements
from trainyard.jobs.options.base import default
from trainyard.operators.export import ExportOperator
from trainyard.schemas.specs.export import FeaturizeSpec


class FeaturizeOperator(ExportOperator):
    """Run a trained network up to a layer with Spark, and write its outputs as a dataset of features.

    Returns (XCom): as ExportOperator. `prepare` returns the columns that the model takes; the dataset has the features
    in their place, beside all other columns. All options of `ExportOperator` apply. A run whose source, code, options
    and model are unchanged is skipped.
    """

    SPEC = FeaturizeSpec
    REQUIREMENTS = requirements.FEATURIZE

    def __init__(
        self, *, model: Any, layer: str, features: str = default(FeaturizeSpec, "features"), **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
