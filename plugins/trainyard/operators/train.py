"""Train: fit a recipe to a dataset on a group of workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.locations import replace_results, resolve_names
from trainyard.jobs.options import Templated, default, or_empty
from trainyard.operators.worker_group import GROUP_FIELDS, WorkerGroupOperator
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec

if TYPE_CHECKING:
    from airflow.sdk import Context

MODULES_OF_FORMATS = {"onnx": ("onnx", "onnxscript"), "mlflow": ("mlflow",)}
"""What writing a model in another format imports on the nodes."""
START_FROM = "start_from"
"""The parameter of a recipe that is the name of a model, by convention: that of `Recipe`."""


class TrainOperator(WorkerGroupOperator):
    """Train a recipe on a group of workers in one Spark barrier stage, and write a model.

    Returns (XCom): `uri`, `weights_sha256`, `metrics` of the best epoch, `epochs`, `best_epoch` and the like.

    Args:
        recipe: `module:name` of the function that returns the `Recipe`.
        recipe_params: Its keyword arguments. The result of another task becomes its `uri`; `start_from` may be the
            name of a model below the storage root.
        dataset: The dataset: a name below the storage root, a URI, or `export.output`, which also sets the version.
        dataset_version: The version to train on. By default the newest.
        dataset_since: Train only on what was added after this version.
        mix: Other datasets whose rows are mixed in, as dicts of `dataset`, `share` (the fraction of an epoch's rows)
            and `version` (default: the newest). Validation uses `dataset` alone.
        model: Where the model is written: a name below the storage root, or a URI.
        workers: The number of workers. Each needs a slot (a core, or a GPU), all at once. A pair (min, max) uses as
            many as there is room for; the global batches, and so the result, stay the same.
        strategy: The distributed strategy: allreduce, averaging, threshold, horovod, diloco or fsdp; or a dict with
            this as `name` and the strategy's options (`trainyard.schemas.specs.strategies`).
        max_restarts: How often the group restarts from its last checkpoint without progress in between, as torchrun's
            option of this name.
        hang_minutes: A group without progress for this long is ended and restarted.
        tensorboard: Whether to write TensorBoard event files to `tensorboard/TASK` in the run's directory.
        mlflow: The MLflow tracking server, for example `http://mlflow:5000`. The experiment has the DAG's name.
        formats: Formats to write the model in too: `onnx`, `pt2` (torch.export) or `mlflow`.
        epoch_models: Whether the model of each epoch is kept. `train.output["epoch_models"]` lists their results, for
            `model=` and `baselines=`.
        fold: The number of the fold, from 1, that validates a model trained on all others: cross-validation of a
            dataset that was exported with `folds=`. None uses the splits `train` and `validation`.
        epochs: Passes over the split `train`.
        batch_size: The global batch: rows over all workers before one update.
        micro_batches: In how many parts each worker processes its rows of a batch, to save memory. It splits the
            global batch; Horovod's and Lightning's gradient accumulation multiply it.
        seed: The seed of the order of rows and of the initial weights.
        bucket_by: A variable-length column; batches then have rows of similar length, with less padding.
        balance: Whether an epoch draws each value of the recipe's label equally often.
        weight_by: The column of weights in proportion to which rows are drawn.
        precision: `float32`, `bfloat16` or `float16`, for the forward and backward pass.
        clip_norm: The largest norm of the gradient.
        early_stopping: Epochs without improvement of `monitor` after which training ends.
        monitor: A validation metric, or `loss`.
        monitor_mode: Whether a smaller (`min`) or larger (`max`) `monitor` is better. By default the metric says so
            itself (`higher_is_better` of torchmetrics), and one that does not is refused; a loss is better when it is
            smaller.
        compile: Whether to apply torch.compile to the model.
        cache_gb: Disk space on each node for shards of remote storage, in GiB. A larger split is read by ranges in
            each epoch.
        gpu_cache_gb: GPU memory of each worker for the whole split `train`, in GiB, from which batches are then taken
            without the CPU; 0 for none. A larger split is read as without.
        checkpoint_minutes: A checkpoint is saved this often, and after each epoch.
        checkpoint_steps: A checkpoint is also saved after so many updates, if given.
        keep_checkpoints: How many checkpoints are kept, beside the one of the best epoch.
    """

    SPEC = TrainSpec
    OUTPUT = "model"
    STORAGE_OPTIONS = ("dataset", "model")
    REQUIREMENTS = requirements.TRAIN

    template_fields: ClassVar[Sequence[str]] = (
        "recipe", "recipe_params", "dataset", "dataset_version", "dataset_since", "mix", "model", "workers", "strategy",
        "max_restarts", "hang_minutes", "tensorboard", "mlflow", "formats", "epoch_models",
        *TrainOptions.model_fields, *GROUP_FIELDS,
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = {"recipe_params": "json", "conf": "json"}

    def __init__(
        self,
        *,
        recipe: str,
        dataset: Any,
        model: str,
        recipe_params: dict[str, Any] | None = None,
        dataset_version: Templated[int] | None = None,
        dataset_since: Templated[int] | None = None,
        mix: Sequence[Mapping[str, Any]] = default(TrainSpec, "mix"),
        workers: Templated[int] | tuple[Templated[int], Templated[int]] = default(TrainSpec, "workers"),
        strategy: str | Mapping[str, Any] = default(TrainSpec, "strategy"),
        max_restarts: Templated[int] = default(TrainSpec, "max_restarts"),
        hang_minutes: Templated[float] = default(TrainSpec, "hang_minutes"),
        tensorboard: Templated[bool] = default(TrainSpec, "tensorboard"),
        mlflow: str | None = None,
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
        self.recipe = recipe
        self.recipe_params = recipe_params
        self.dataset = dataset
        self.dataset_version = dataset_version
        self.dataset_since = dataset_since
        self.mix = mix
        self.model = model
        self.workers = workers
        self.strategy = strategy
        self.max_restarts = max_restarts
        self.hang_minutes = hang_minutes
        self.tensorboard = tensorboard
        self.mlflow = mlflow
        self.formats = formats
        self.epoch_models = epoch_models
        self.fold = fold
        self.epochs = epochs
        self.batch_size = batch_size
        self.micro_batches = micro_batches
        self.seed = seed
        self.bucket_by = bucket_by
        self.balance = balance
        self.weight_by = weight_by
        self.precision = precision
        self.clip_norm = clip_norm
        self.early_stopping = early_stopping
        self.monitor = monitor
        self.monitor_mode = monitor_mode
        self.compile = compile
        self.cache_gb = cache_gb
        self.gpu_cache_gb = gpu_cache_gb
        self.checkpoint_minutes = checkpoint_minutes
        self.checkpoint_steps = checkpoint_steps
        self.keep_checkpoints = keep_checkpoints
        self.validate_options()

    def locate_fields(self) -> dict[str, Any]:
        """Return the spec's fields, with the URIs of other tasks' results in `recipe_params` and `mix`."""
        fields = super().locate_fields()
        if isinstance(fields["mix"], list | tuple):
            fields["mix"] = [_locate_mixed(mixed) for mixed in fields["mix"]]
        if isinstance(params := fields["recipe_params"], Mapping):
            fields["recipe_params"] = {name: replace_results(value) for name, value in params.items()}
        return fields

    def resolve_fields(self, root: str) -> dict[str, Any]:
        """Return the spec's fields, with the names in `mix` and the recipe's `start_from` resolved too."""
        fields = super().resolve_fields(root)
        if isinstance(params := fields["recipe_params"], Mapping) and START_FROM in params:
            fields["recipe_params"] = {**params, START_FROM: resolve_names(root, params[START_FROM])}
        if isinstance(fields["mix"], list | tuple):
            fields["mix"] = [_resolve_mixed(root, mixed) for mixed in fields["mix"]]
        return fields

    def option_names(self) -> dict[str, str]:
        """Return the options whose names differ from that of their field."""
        return {"min_workers": "workers"}

    def modules(self, spec: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what the job's Python imports on the nodes, with what the formats of the model need."""
        extra = [name for format in spec["formats"] for name in MODULES_OF_FORMATS.get(format, ())]
        return (*super().modules(spec), *dict.fromkeys(extra))

    def spec_fields(self) -> dict[str, Any]:
        """Return the options as fields of the spec."""
        minimum: Any = None
        maximum: Any = self.workers
        if isinstance(maximum, list | tuple) and len(maximum) == 2:
            minimum, maximum = maximum
        return {
            "recipe": self.recipe,
            "recipe_params": or_empty(self.recipe_params),
            "dataset": self.dataset,
            "dataset_version": self.dataset_version,
            "dataset_since": self.dataset_since,
            "mix": self.mix,
            "model": self.model,
            "workers": maximum,
            "min_workers": minimum,
            "strategy": self.strategy,
            "max_restarts": self.max_restarts,
            "hang_minutes": self.hang_minutes,
            "tensorboard": self.tensorboard,
            "mlflow": self.mlflow,
            "formats": self.formats,
            "epoch_models": self.epoch_models,
            "options": {name: getattr(self, name) for name in TrainOptions.model_fields},
        }

    def _publish_result(self, context: Context, task_key: TaskKey, record: RunRecord) -> dict[str, Any]:
        """Publish the result, and the models of the epochs under a key of their own."""
        result = super()._publish_result(context, task_key, record)
        if models := result.get("epoch_models"):
            context["ti"].xcom_push(key="epoch_models", value=models)
        return result


def _locate_mixed(mixed: Any) -> Any:
    """Return a dataset to mix in with the URI and the version of the result of an export, where it is one."""
    if not isinstance(mixed, Mapping) or not isinstance(result := mixed.get("dataset"), Mapping):
        return mixed
    return {"version": result.get("version"), **mixed, "dataset": replace_results(result)}


def _resolve_mixed(root: str, mixed: Any) -> Any:
    """Return a dataset to mix in with its URI; a template as it is."""
    return {**mixed, "dataset": resolve_names(root, mixed["dataset"])} if isinstance(mixed, Mapping) else mixed
