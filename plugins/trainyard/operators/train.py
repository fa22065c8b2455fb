"""Train: a gang of ranks in one Spark barrier stage fits a recipe to a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.jobs import requirements
from trainyard.jobs.locations import uri_of
from trainyard.jobs.operator import COMMON_FIELDS, JobOperator
from trainyard.jobs.options import Templated, default
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.specs.train import TrainOptions, TrainSpec

if TYPE_CHECKING:
    from airflow.sdk import Context

FORMATS_NEED = {"onnx": ("onnx", "onnxscript"), "mlflow": ("mlflow",)}
"""What writing a model in another format imports on the nodes."""


class TrainOperator(JobOperator):
    """Writes a model artifact. Returns its `uri`, metrics and the like.

    :param recipe: `module:name` of what is trained
    :param recipe_params: its keyword arguments
    :param dataset: the dataset: a name below the storage root, an absolute URI, or `export.output`, which also says
        which version of it
    :param dataset_version: the version to train on; by default the newest
    :param dataset_since: train only on what came after this version
    :param mix: other datasets whose rows are mixed into those of `dataset`, as dicts of `dataset`, `share` (of the
        rows of an epoch) and, if it is not the newest, `version`; validation is on `dataset` alone
    :param model: where the bundle goes: a name below the storage root, or an absolute URI
    :param workers: ranks; each needs a slot (a core, or a GPU), all at once. A pair (least, most) lets the gang
        have as many as there is room for: the global batch, the order of rows and so the result stay the same
    :param strategy: how ranks agree on one model: allreduce, averaging, threshold, horovod, diloco or fsdp; a dict
        with this as its `name` also gives options (`trainyard.contract.strategies`)
    :param max_restarts: times that the gang starts again from its last checkpoint after it lost a rank, without
        progress in between, before the task fails
    :param hang_minutes: a gang in which nothing went on for so long is ended, and starts again
    :param tensorboard: whether the run's directory gets event files, at `tensorboard/TASK`
    :param mlflow: tracking server to log to, such as `http://mlflow:5000`: a run in the experiment of the DAG's name
    :param formats: what the model is written as too, beside its weights: `onnx`, `pt2` (torch.export) or `mlflow`;
        their URIs are in what the task returns
    :param epoch_models: whether the model of each epoch is kept, a bundle of its own; their URIs are
        `train.output["epoch_models"]`, for an EvaluateOperator to compare
    :param epochs: passes over the split `train`
    :param batch_size: rows over all ranks before one update
    :param micro_batches: steps whose gradients are added up before one update
    :param seed: of the order of rows, and of the model's first weights
    :param bucket_by: a list column; batches then hold rows of about one length, so that less of them is padding
    :param balance: an epoch draws as many rows as there are, and each value of the recipe's label equally often
    :param weight_by: the same, each row in proportion to this column
    :param precision: of the forward and the backward pass
    :param clip_norm: largest norm of the gradient
    :param early_stopping: epochs without improvement of `monitor` after which training ends
    :param monitor: a validation metric, or `loss`
    :param monitor_mode: which way `monitor` is better: `min` or `max`
    :param compile: whether the model goes through torch.compile
    :param cache_gb: what shards of remote storage may take on a node's disk, in GiB; a split that is larger is
        read by ranges, anew in each epoch
    :param checkpoint_minutes: a checkpoint is saved this often, and after epochs
    :param checkpoint_steps: a checkpoint is saved after as many updates, if given
    :param keep_checkpoints: how many checkpoints stay, beside the one of the best epoch
    """

    SPEC = TrainSpec
    OUTPUT = "model"
    STORAGE_OPTIONS = ("dataset", "model")
    REQUIREMENTS = requirements.TRAIN

    template_fields: ClassVar[Sequence[str]] = (
        "recipe", "recipe_params", "dataset", "dataset_version", "dataset_since", "mix", "model", "workers", "strategy",
        "max_restarts", "hang_minutes", "tensorboard", "mlflow", "formats", "epoch_models",
        *TrainOptions.model_fields, *COMMON_FIELDS,
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
        monitor_mode: str = default(TrainOptions, "monitor_mode"),
        compile: Templated[bool] = default(TrainOptions, "compile"),
        cache_gb: Templated[float] = default(TrainOptions, "cache_gb"),
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
        self.checkpoint_minutes = checkpoint_minutes
        self.checkpoint_steps = checkpoint_steps
        self.keep_checkpoints = keep_checkpoints
        self.validate_options()

    def resolve_fields(self, root: str) -> dict[str, Any]:
        """The spec's fields; what other tasks returned is told to the recipe as its URI."""
        fields = super().resolve_fields(root)
        fields["mix"] = [_mixed(root, each) for each in fields["mix"]]
        given = fields["recipe_params"]
        if isinstance(given, Mapping):
            told = {name: uri_of(root, v) if isinstance(v, Mapping) and "uri" in v else v for name, v in given.items()}
            fields["recipe_params"] = told
        return fields

    def _publish_result(self, context: Context, task_key: TaskKey, found: RunRecord) -> dict[str, Any]:
        """As of every job; the models of epochs under a key of their own too, for `train.output["epoch_models"]`."""
        result = super()._publish_result(context, task_key, found)
        if models := result.get("epoch_models"):
            context["ti"].xcom_push(key="epoch_models", value=models)
        return result

    def modules(self, spec: Mapping[str, Any]) -> tuple[str, ...]:
        wanted = [name for format in spec["formats"] for name in FORMATS_NEED.get(format, ())]
        return (*super().modules(spec), *dict.fromkeys(wanted))

    def spec_fields(self) -> dict[str, Any]:
        least: Any = None
        most: Any = self.workers
        if isinstance(most, list | tuple) and len(most) == 2:
            least, most = most
        return {
            "recipe": self.recipe,
            "recipe_params": self.recipe_params or {},
            "dataset": self.dataset,
            "dataset_version": self.dataset_version,
            "dataset_since": self.dataset_since,
            "mix": self.mix,
            "model": self.model,
            "workers": most,
            "min_workers": least,
            "strategy": self.strategy,
            "max_restarts": self.max_restarts,
            "hang_minutes": self.hang_minutes,
            "tensorboard": self.tensorboard,
            "mlflow": self.mlflow,
            "formats": self.formats,
            "epoch_models": self.epoch_models,
            "options": {name: getattr(self, name) for name in TrainOptions.model_fields},
        }


def _mixed(root: str, given: Any) -> Any:
    """A dataset to mix in, with its URI, and its version where an export's result says it."""
    if not isinstance(given, Mapping) or "dataset" not in given:
        return given
    exported = given["dataset"]
    version = {"version": exported.get("version")} if isinstance(exported, Mapping) else {}
    return {**version, **given, "dataset": uri_of(root, exported)}
