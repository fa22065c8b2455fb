"""Evaluate: Spark scores a model on one split of a batch dataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trainyard.contract.spec import EvaluateSpec
from trainyard.operators.base import COMMON_FIELDS, JobOperator
from trainyard.operators.options import Templated, default
from trainyard.sizing import Memory


class EvaluateOperator(JobOperator):
    """Computes metrics in one pass, and returns them.

    :param model: a name below the storage root, an absolute URI, or `train.output`
    :param batches: a name below the storage root, an absolute URI, or `export.output`, which also says which version
    :param batches_version: the version to score on; by default the newest
    :param split: which one to score
    :param metrics: names of metrics
    :param rows_per_batch: rows scored at once
    """

    SPEC = EvaluateSpec
    PLACES = ("model", "batches")
    MODULES = (*JobOperator.MODULES, "torch", "torchmetrics")
    MEMORY = Memory(heap="1g", native="1536m")
    DRIVER_MEMORY = Memory(heap="1g", native="1536m")

    template_fields: ClassVar[Sequence[str]] = (
        "model", "batches", "batches_version", "split", "metrics", "rows_per_batch", *COMMON_FIELDS,
    )  # fmt: skip

    def __init__(
        self,
        *,
        model: Any,
        batches: Any,
        metrics: Sequence[str],
        batches_version: Templated[int] | None = None,
        split: str = default(EvaluateSpec, "split"),
        rows_per_batch: Templated[int] = default(EvaluateSpec, "rows_per_batch"),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.batches = batches
        self.batches_version = batches_version
        self.split = split
        self.metrics = metrics
        self.rows_per_batch = rows_per_batch
        self.refuse_bad_input()

    def _fields(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "batches": self.batches,
            "batches_version": self.batches_version,
            "split": self.split,
            "metrics": self.metrics,
            "rows_per_batch": self.rows_per_batch,
        }
