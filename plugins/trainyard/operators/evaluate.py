"""Evaluate: Spark scores a model on one split of a batch dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.contract import bundle
from trainyard.contract.spec import EvaluateSpec
from trainyard.operators.base import COMMON_FIELDS, JobOperator
from trainyard.operators.options import Templated, default
from trainyard.operators.validation import is_pending
from trainyard.sizing import Memory


class EvaluateOperator(JobOperator):
    """Computes metrics in one pass, with intervals, and returns them; all of it is written beside the bundle.

    :param model: a name below the storage root, an absolute URI, or `train.output`
    :param against: other models that are scored on the same rows; what is not there yet is left out
    :param batches: a name below the storage root, an absolute URI, or `export.output`, which also says which version
    :param batches_version: the version to score on; by default the newest
    :param split: which one to score
    :param metrics: names of metrics, and `module:function` that makes one of torchmetrics
    :param slices: columns for whose values the metrics are told apart
    :param query: column whose rows with one value are ranked together, for metrics of ranking
    :param confidence: of the intervals
    :param examples: how many of the rows on which the model does worst are kept
    :param rows_per_batch: rows scored at once; by default found by trying
    """

    SPEC = EvaluateSpec
    PLACES = ("model", "against", "batches")
    MODULES = (*JobOperator.MODULES, "torch", "torchmetrics")
    MEMORY = Memory(heap="1g", native="1536m")
    DRIVER_MEMORY = Memory(heap="1g", native="1536m")

    template_fields: ClassVar[Sequence[str]] = (
        "model", "against", "batches", "batches_version", "split", "metrics", "slices", "query", "confidence",
        "examples", "rows_per_batch", *COMMON_FIELDS,
    )  # fmt: skip

    def __init__(
        self,
        *,
        model: Any,
        batches: Any,
        metrics: Sequence[str],
        against: Any = (),
        batches_version: Templated[int] | None = None,
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
        self.against = against
        self.batches = batches
        self.batches_version = batches_version
        self.split = split
        self.metrics = metrics
        self.slices = slices
        self.query = query
        self.confidence = confidence
        self.examples = examples
        self.rows_per_batch = rows_per_batch
        self.refuse_bad_input()

    def located(self, root: str) -> dict[str, Any]:
        fields = super().located(root)
        return fields | {"against": [uri for uri in fields["against"] if is_pending(uri) or bundle.exists(uri)]}

    def _fields(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "against": self.against if isinstance(self.against, list | tuple) else [self.against],
            "batches": self.batches,
            "batches_version": self.batches_version,
            "split": self.split,
            "metrics": self.metrics,
            "slices": self.slices,
            "query": self.query,
            "confidence": self.confidence,
            "examples": self.examples,
            "rows_per_batch": self.rows_per_batch,
        }
