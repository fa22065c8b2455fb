"""Train: fit a recipe to a dataset on a group of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from trainyard.compat import AirflowSkipException
from trainyard.errors import TrainyardError
from trainyard.files import storage
from trainyard.jobs.options import requirements
from trainyard.jobs.options.base import Templated, default
from trainyard.jobs.options.locations import replace_results
from trainyard.jobs.pinning import drop_missing_start, explain_nothing_new
from trainyard.operators.bases.worker_group import WorkerGroupOperator, WorkerGroupOptions
from trainyard.planning import paths
from trainyard.planning.plan import Plan
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec

if TYPE_CHECKING:
    from airflow.sdk import Context

OnNothingNew = Literal["fail", "skip"]

MODULES_OF_FORMATS = {"onnx": ("onnx", "onnxscript"), "mlflow": ("mlflow",)}
"""What writing a model in another format imports on the nodes."""


class TrainOperatorOptions(WorkerGroupOptions):
    """The options beside the fields of the spec."""

    on_nothing_new: OnNothingNew
    """What happens if nothing was added since `dataset_since`: `fail`, or `skip` the task and those downstream."""


class TrainOperator(WorkerGroupOperator):
    """Train a recipe, or a loop of your own, on a group of workers in one Spark barrier stage, and write a model.

    Returns (XCom): `uri`, `weights_sha256`, `metrics` of the best epoch, `epochs`, `best_epoch` and the like.
    """

    SPEC = TrainSpec
    OPTIONS = TrainOperatorOptions
    REQUIREMENTS = requirements.TRAIN

    on_nothing_new: OnNothingNew

    def __init__(
        self,
        *,
        dataset: Any,
        model: str | None = None,
        recipe: str | None = None,
        recipe_params: dict[str, Any] | None = None,
        loop: str | None = None,
        loop_params: dict[str, Any] | None = None,
        dataset_version: Templated[int] | None = None,
        dataset_since: Any = None,
        on_nothing_new: Templated[OnNothingNew] = "fail",
        start_from: Any = None,
        mix: Sequence[Mapping[str, Any]] = default(TrainSpec, "mix"),
        workers: Templated[int] | tuple[Templated[int], Templated[int]] = default(TrainSpec, "workers"),
        strategy: str | Mapping[str, Any] = default(TrainSpec, "strategy"),
        max_restarts: Templated[int] = default(TrainSpec, "max_restarts"),
        hang_minutes: Templated[float] = default(TrainSpec, "hang_minutes"),
        trackers: Sequence[str | Mapping[str, Any]] = default(TrainSpec, "trackers"),
        formats: Sequence[str] = default(TrainSpec, "formats"),
        epoch_models: Templated[bool] = default(TrainSpec, "epoch_models"),
        fold: Templated[int] | None = None,
        epochs: Templated[int] = default(TrainOptions, "epochs"),
        batch_size: Templated[int] = default(TrainOptions, "batch_size"),
        micro_batches: Templated[int] = default(TrainOptions, "micro_batches"),
        seed: Templated[int] = default(TrainOptions, "seed"),
        bucket_by: str | None = None,
        balance: Templated[bool] = default(TrainOptions, "balance"),
        weight_by: str | None = None,
        precision: str = default(TrainOptions, "precision"),
        clip_norm: Templated[float] | None = None,
        early_stopping: Templated[int] | None = None,
        monitor: str = default(TrainOptions, "monitor"),
        monitor_mode: str | None = default(TrainOptions, "monitor_mode"),
        compile: Templated[bool] = default(TrainOptions, "compile"),
        cache_gb: Templated[float] = default(TrainOptions, "cache_gb"),
        gpu_cache_gb: Templated[float] = default(TrainOptions, "gpu_cache_gb"),
        checkpoint_minutes: Templated[float] = default(TrainOptions, "checkpoint_minutes"),
        checkpoint_steps: Templated[int] | None = None,
        keep_checkpoints: Templated[int] = default(TrainOptions, "keep_checkpoints"),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)

    def run_plan(self, context: Context, plan: Plan) -> dict[str, Any]:
        """Train, unless nothing was added since `dataset_since`. An attempt before this one has read what there was."""
        why = ""
        with self._run.final_if_refused():
            if not _was_submitted(plan.job.task_key):
                why = self._check_added(plan.job.spec)
        if why:
            raise AirflowSkipException(f"{self.title} is skipped: {why}.")
        return super().run_plan(context, plan)

    def _check_added(self, spec: Mapping[str, Any]) -> str:
        """Return why the task is skipped, "" if it is not. Raises TrainyardError if it fails for that reason."""
        try:
            why = explain_nothing_new(spec)
        except TrainyardError as error:
            raise type(error)(f"{self.title}: {error}") from None
        if why and self.on_nothing_new != "skip":
            raise TrainyardError(
                f"{self.title}: {why}. Export new rows first, write on_nothing_new='skip' for a task that is skipped "
                "then, or remove dataset_since= to train on all rows."
            )
        return why

    def locate_fields(self) -> dict[str, Any]:
        """Return the spec's fields, with the URIs of other tasks' results in the parameters."""
        fields = super().locate_fields()
        for field in ("recipe_params", "loop_params"):
            fields[field] = _replace_each(fields[field])
        if isinstance(strategy := fields["strategy"], Mapping) and "params" in strategy:
            fields["strategy"] = {**strategy, "params": _replace_each(strategy["params"])}
        if isinstance(since := fields["dataset_since"], str) and since.isdecimal():
            fields["dataset_since"] = int(since)  # a template renders to text, and no model has a name of digits alone
        return fields

    def pin(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a rendered spec with the versions that its models have now. Raises TrainyardError."""
        return super().pin(drop_missing_start(spec))

    def modules(self, spec: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what the job's Python imports on the nodes, with what the formats of the model need."""
        trackers = spec["trackers"] if isinstance(spec["trackers"], list | tuple) else ()  # what another task returns
        registers = any(isinstance(each, Mapping) and each.get("registered_model_name") for each in trackers)
        formats = [*spec["formats"], *(["mlflow"] if registers else [])]
        extra = [name for format in formats for name in MODULES_OF_FORMATS.get(format, ())]
        return (*super().modules(spec), *dict.fromkeys(extra))


def _replace_each(params: Any) -> Any:
    """Return parameters with the URIs of other tasks' results in place of these."""
    return {name: replace_results(each) for name, each in params.items()} if isinstance(params, Mapping) else params


def _was_submitted(task_key: TaskKey) -> bool:
    """Return whether an attempt before this one, since the task was cleared, has submitted its application."""
    earlier = (
        task_key.model_copy(update={"try_number": number}) for number in range(task_key.first_try, task_key.try_number)
    )
    return any(storage.exists(paths.attempt_uri(key)) for key in earlier)
