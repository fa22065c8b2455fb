"""Evaluate: score models on one split of a dataset with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.options import Templated, default
from trainyard.jobs.validation import is_pending
from trainyard.operators.spark_stage import STAGE_FIELDS, SparkStageOperator
from trainyard.schemas import model_artifact
from trainyard.schemas.specs.evaluate import EvaluateSpec


class EvaluateOperator(SparkStageOperator):
    """Compute the metrics of a model, with confidence intervals, in one pass over a split.

    Returns (XCom): `metrics` that are numbers, `intervals`, `baselines`, and `evaluation`, the URI of the whole
    evaluation with confusion matrices, which is written beside the model's weights.

    Args:
        model: The model: a name below the storage root, a URI, or `train.output`, which also sets the weights.
        baselines: Other models that are scored on the same rows. One that does not exist is left out.
        dataset: The dataset: a name below the storage root, a URI, or `export.output`, which also sets the version.
        dataset_version: The version to score on. By default the newest.
        split: The split to score.
        metrics: Names of metrics, or `module:function` for a function that returns a torchmetrics metric. By default
            the `metrics` of the model's recipe, named `recipe:NAME`, which have no intervals and promote no model.
        slices: Columns for whose values the metrics are also computed apart.
        query: The column whose rows with one value are ranked together, for ranking metrics.
        confidence: The confidence of the intervals, between 0 and 1.
        examples: How many of the rows with the largest loss are kept.
        rows_per_batch: Rows that are scored at once. By default the fastest number is found by trying.
    """

    SPEC = EvaluateSpec
    STORAGE_OPTIONS = ("model", "baselines", "dataset")
    REQUIREMENTS = requirements.EVALUATE

    template_fields: ClassVar[Sequence[str]] = (
        "model", "baselines", "dataset", "dataset_version", "split", "metrics", "slices", "query", "confidence",
        "examples", "rows_per_batch", *STAGE_FIELDS,
    )  # fmt: skip

    def __init__(
        self,
        *,
        model: Any,
        dataset: Any,
        metrics: Sequence[str] = default(EvaluateSpec, "metrics"),
        baselines: Any = (),
        dataset_version: Templated[int] | None = None,
        split: str = default(EvaluateSpec, "split"),
        slices: Sequence[str] = default(EvaluateSpec, "slices"),
        query: str | None = None,
        confidence: Templated[float] = default(EvaluateSpec, "confidence"),
        examples: Templated[int] = default(EvaluateSpec, "examples"),
        rows_per_batch: Templated[int] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.baselines = baselines
        self.dataset = dataset
        self.dataset_version = dataset_version
        self.split = split
        self.metrics = metrics
        self.slices = slices
        self.query = query
        self.confidence = confidence
        self.examples = examples
        self.rows_per_batch = rows_per_batch
        self.validate_options()

    def resolve_fields(self, root: str) -> dict[str, Any]:
        """Return the spec's fields, without the baselines that do not exist."""
        fields = super().resolve_fields(root)
        return fields | {
            "baselines": [uri for uri in fields["baselines"] if is_pending(uri) or model_artifact.exists(uri)]
        }

    def spec_fields(self) -> dict[str, Any]:
        """Return the options as fields of the spec."""
        return {
            "model": self.model,
            "baselines": self.baselines if isinstance(self.baselines, list | tuple) else [self.baselines],
            "dataset": self.dataset,
            "dataset_version": self.dataset_version,
            "split": self.split,
            "metrics": self.metrics,
            "slices": self.slices,
            "query": self.query,
            "confidence": self.confidence,
            "examples": self.examples,
            "rows_per_batch": self.rows_per_batch,
        }
