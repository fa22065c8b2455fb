"""Train: a gang of ranks in one Spark barrier stage fits a recipe to a batch dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.contract.record import RunRecord
from trainyard.contract.spec import Place, TrainOptions, TrainSpec
from trainyard.operators.base import COMMON_FIELDS, JobOperator, uri_of
from trainyard.operators.options import Templated, default
from trainyard.sizing import Memory

if TYPE_CHECKING:
    from airflow.sdk import Context

FORMATS_NEED = {"onnx": ("onnx", "onnxscript"), "mlflow": ("mlflow",)}
"""What writing a model in another format imports on the nodes."""


class TrainOperator(JobOperator):
    """Writes a model bundle. Returns its `uri`, metrics and the like.

    :param recipe: `module:name` of what is trained
    :param recipe_params: its keyword arguments
    :param batches: the dataset: a name below the storage root, an absolute URI, or `export.output`, which also says
        which version of it
    :param batches_version: the version to train on; by default the newest
    :param batches_since: train only on what came after this version
    :param mix: other datasets whose rows are mixed into those of `batches`, as dicts of `batches`, `share` (of the
        rows of an epoch) and, if it is not the newest, `version`; validation is on `batches` alone
    :param model: where the bundle goes: a name below the storage root, or an absolute URI
    :param workers: ranks; each needs a slot (a core, or a GPU), all at once. A pair (least, most) lets the gang
        have as many as there is room for: the global batch, the order of rows and so the result stay the same
    :param strategy: how ranks agree on one model: allreduce, averaging, threshold, horovod, diloco or fsdp; a dict
        with this as its `name` also gives options (`trainyard.contract.strategies`)
    :param restarts: times that the gang starts again from its last checkpoint after it lost a rank, without
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
    :param accumulate: steps whose gradients are added up before one update
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
    PRODUCT = "model"
    PLACES = ("batches", "model")
    MODULES = ("fsspec", "numpy", "pyarrow", "pydantic", "torch")
    MEMORY = Memory(heap="512m", native="2g")

    template_fields: ClassVar[Sequence[str]] = (
        "recipe", "recipe_params", "batches", "batches_version", "batches_since", "mix", "model", "workers", "strategy",
        "restarts", "hang_minutes", "tensorboard", "mlflow", "formats", "epoch_models",
        *TrainOptions.model_fields, *COMMON_FIELDS,
    )  # fmt: skip
    template_fields_renderers: ClassVar[dict[str, str]] = {"recipe_params": "json", "conf": "json"}

    def __init__(
        self,
        *,
        recipe: str,
        batches: Any,
        model: str,
        recipe_params: dict[str, Any] | None = None,
        batches_version: Templated[int] | None = None,
        batches_since: Templated[int] | None = None,
        mix: Sequence[Mapping[str, Any]] = default(TrainSpec, "mix"),
        workers: Templated[int] | tuple[Templated[int], Templated[int]] = default(TrainSpec, "workers"),
        strategy: str | Mapping[str, Any] = default(TrainSpec, "strategy"),
        restarts: Templated[int] = default(TrainSpec, "restarts"),
        hang_minutes: Templated[float] = default(TrainSpec, "hang_minutes"),
        tensorboard: Templated[bool] = default(TrainSpec, "tensorboard"),
        mlflow: str | None = None,
        formats: Sequence[str] = default(TrainSpec, "formats"),
        epoch_models: Templated[bool] = default(TrainSpec, "epoch_models"),
        epochs: Templated[int] = default(TrainOptions, "epochs"),
        batch_size: Templated[int] = default(TrainOptions, "batch_size"),
        accumulate: Templated[int] = default(TrainOptions, "accumulate"),
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
        self.batches = batches
        self.batches_version = batches_version
        self.batches_since = batches_since
        self.mix = mix
        self.model = model
        self.workers = workers
        self.strategy = strategy
        self.restarts = restarts
        self.hang_minutes = hang_minutes
        self.tensorboard = tensorboard
        self.mlflow = mlflow
        self.formats = formats
        self.epoch_models = epoch_models
        self.epochs = epochs
        self.batch_size = batch_size
        self.accumulate = accumulate
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
        self.refuse_bad_input()

    def located(self, root: str) -> dict[str, Any]:
        """The spec's fields; what other tasks returned is told to the recipe as its URI."""
        fields = super().located(root)
        fields["mix"] = [_mixed(root, each) for each in fields["mix"]]
        given = fields["recipe_params"]
        if isinstance(given, Mapping):
            told = {name: uri_of(root, v) if isinstance(v, Mapping) and "uri" in v else v for name, v in given.items()}
            fields["recipe_params"] = told
        return fields

    def _result(self, context: Context, place: Place, found: RunRecord) -> dict[str, Any]:
        """As of every job; the models of epochs under a key of their own too, for `train.output["epoch_models"]`."""
        result = super()._result(context, place, found)
        if models := result.get("epoch_models"):
            context["ti"].xcom_push(key="epoch_models", value=models)
        return result

    def _modules(self, spec: Mapping[str, Any]) -> tuple[str, ...]:
        wanted = [name for format in spec["formats"] for name in FORMATS_NEED.get(format, ())]
        return (*super()._modules(spec), *dict.fromkeys(wanted))

    def _fields(self) -> dict[str, Any]:
        least: Any = None
        most: Any = self.workers
        if isinstance(most, list | tuple) and len(most) == 2:
            least, most = most
        return {
            "recipe": self.recipe,
            "recipe_params": self.recipe_params or {},
            "batches": self.batches,
            "batches_version": self.batches_version,
            "batches_since": self.batches_since,
            "mix": self.mix,
            "model": self.model,
            "workers": most,
            "min_workers": least,
            "strategy": self.strategy,
            "restarts": self.restarts,
            "hang_minutes": self.hang_minutes,
            "tensorboard": self.tensorboard,
            "mlflow": self.mlflow,
            "formats": self.formats,
            "epoch_models": self.epoch_models,
            "options": {name: getattr(self, name) for name in TrainOptions.model_fields},
        }


def _mixed(root: str, given: Any) -> Any:
    """A dataset to mix in, with its URI, and its version where an export's result says it."""
    if not isinstance(given, Mapping) or "batches" not in given:
        return given
    exported = given["batches"]
    version = {"version": exported.get("version")} if isinstance(exported, Mapping) else {}
    return {**version, **given, "batches": uri_of(root, exported)}
