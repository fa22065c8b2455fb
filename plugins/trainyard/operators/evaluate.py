"""Evaluate: score models on one split of a dataset with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trainyard.errors import TrainyardError
from trainyard.jobs.options import requirements, validation
from trainyard.jobs.options.base import Templated, default
from trainyard.jobs.options.validation import is_pending
from trainyard.operators.bases.spark_stage import SparkStageOperator
from trainyard.schemas import model_artifact
from trainyard.schemas.specs.evaluate import EvaluateSpec


class EvaluateOperator(SparkStageOperator):
    """Compute the metrics of a model, or of several, with confidence intervals, in one pass over a split.

    Returns (XCom): `metrics` that are numbers, `intervals`, `baselines`, and `evaluation`, the URI of the whole
    evaluation with confusion matrices, which is written beside the model's weights. With `models`, all of that for each
    model by its name, in `evaluations`; a PromoteOperator takes the best of them.
    """

    SPEC = EvaluateSpec
    REQUIREMENTS = requirements.EVALUATE

    def __init__(
        self,
        *,
        model: Any = None,
        models: Any = (),
        dataset: Any = None,
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
        self._names_dataset = dataset is not None
        super().__init__(**kwargs)

    def spec_fields(self) -> dict[str, Any]:
        """Return the options as fields of the spec; a model in place of several is a list of one."""
        fields = super().spec_fields()
        return fields | {name: flatten(fields[name]) for name in ("models", "baselines")}

    def resolve_fields(self, root: str) -> dict[str, Any]:
        """Return the spec's fields, without the baselines that do not exist.

        Raises:
            TrainyardError: The dataset that is named has rendered to nothing.
        """
        fields = super().resolve_fields(root)
        if self._names_dataset and fields["dataset"] is None:
            clause = "dataset=None: the task that should return it was skipped, or returned nothing"
            raise TrainyardError(validation.message(type(self).__name__, self.task_id, [clause]))
        return fields | {
            "baselines": [uri for uri in fields["baselines"] if is_pending(uri) or model_artifact.exists(uri)]
        }


def flatten(models: Any) -> Any:
    """Return one list of models, of which some are lists themselves: the results of a mapped training; else `models`.

    A result of another task that is not there yet, or a single model, is a list of one.
    """
    if not isinstance(models, list | tuple):
        return [models]
    return [one for item in models for one in (item if isinstance(item, list | tuple) else [item])]
