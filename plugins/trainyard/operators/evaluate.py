"""Evaluate: Spark scores a model on one split of a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.operator import COMMON_FIELDS, JobOperator
from trainyard.jobs.options import Templated, default
from trainyard.jobs.validation import is_pending
from trainyard.schemas import model_artifact
from trainyard.schemas.specs.evaluate import EvaluateSpec


class EvaluateOperator(JobOperator):
    """Computes metrics in one pass, with intervals, and returns them; all of it is written beside the bundle.

    :param model: a name below the storage root, an absolute URI, or `train.output`
    :param baselines: other models that are scored on the same rows; what is not there yet is left out
    :param dataset: a name below the storage root, an absolute URI, or `export.output`, which also says which version
    :param dataset_version: the version to score on; by default the newest
    :param split: which one to score
    :param metrics: names of metrics, and `module:function` that makes one of torchmetrics
    :param slices: columns for whose values the metrics are told apart
    :param query: column whose rows with one value are ranked together, for metrics of ranking
    :param confidence: of the intervals
    :param examples: how many of the rows on which the model does worst are kept
    :param rows_per_batch: rows scored at once; by default found by trying
    """

    SPEC = EvaluateSpec
    STORAGE_OPTIONS = ("model", "baselines", "dataset")
    REQUIREMENTS = requirements.EVALUATE

    template_fields: ClassVar[Sequence[str]] = (
        "model", "baselines", "dataset", "dataset_version", "split", "metrics", "slices", "query", "confidence",
        "examples", "rows_per_batch", *COMMON_FIELDS,
    )  # fmt: skip

    def __init__(
        self,
        *,
        model: Any,
        dataset: Any,
        metrics: Sequence[str],
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
        fields = super().resolve_fields(root)
        return fields | {
            "baselines": [uri for uri in fields["baselines"] if is_pending(uri) or model_artifact.exists(uri)]
        }

    def spec_fields(self) -> dict[str, Any]:
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
