"""Job specs: everything a job is told, as one document that both sides validate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from trainyard.contract import metrics
from trainyard.contract.document import Document, Part
from trainyard.contract.secrets import INSTEAD, UNSAID, secrets_in
from trainyard.contract.strategies import Strategy, StrategyOptions


def _import_path(value: str) -> str:
    module, colon, name = value.partition(":")
    parts = [*module.split("."), name]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError("write it as 'module:name', for example 'digits.recipe:convnet'")
    return value


def _module(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError("write it as 'package.module', for example 'digits.horovod_script'")
    return value


def _listed(*example: str) -> BeforeValidator:
    """Strings, and not one alone, which would be taken letter by letter."""

    def check(value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"write a list of strings, for example {list(example)}")
        return value

    return BeforeValidator(check)


def _texts(value: Any) -> Any:
    """Values as the manifest counts them."""
    if isinstance(value, str | Mapping):
        raise ValueError("write a list of values, for example ['cat', 'dog']")
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in value]


def _metric(value: str) -> str:
    if not metrics.known(value):
        every = ", ".join((*metrics.CLASSIFICATION, *metrics.REGRESSION, *metrics.RANKING))
        raise ValueError(f"there are {every}, ndcg@10, and 'module:function' for one of your own")
    return _import_path(value) if metrics.is_custom(value) else value


ImportPath = Annotated[str, AfterValidator(_import_path)]
"""Where user code lies: `package.module:function`."""

Module = Annotated[str, AfterValidator(_module)]
"""A user's program: `package.module`."""

Arguments = Annotated[tuple[str, ...], _listed("--epochs", "3")]
"""A program's command line, word by word."""

Metric = Annotated[str, AfterValidator(_metric)]
"""A metric's name, or the user's function that makes one of torchmetrics: `module:function`."""

Precision = Literal["float32", "bfloat16", "float16"]

Format = Literal["mlflow", "onnx", "pt2"]
"""What a model can be written as, beside a bundle: for MLflow, as ONNX, as torch.export's program."""


class Source(Part):
    """What Spark reads: a format of `spark.read`, its options, and a path for those that have one."""

    format: str
    path: str | None = None
    options: dict[str, str] = {}

    @model_validator(mode="after")
    def _discreet(self) -> Source:
        if found := secrets_in(self.options.items()):
            told = f"options has {', '.join(found)}, and {INSTEAD}; `prepare` can read it from there"
            raise PydanticCustomError(UNSAID, told)
        return self


class Expectation(Part):
    """What is expected of a column, in each split.

    Bounds of its numbers, the largest fraction of nulls, the only values, and the least rows of each value (of
    those in `values`, or of those that occur).
    """

    min: float | None = None
    max: float | None = None
    nulls: Annotated[float, Field(ge=0, le=1)] | None = None
    values: Annotated[tuple[str, ...], BeforeValidator(_texts)] | None = None
    rows_per_value: PositiveInt | None = None

    @model_validator(mode="after")
    def _sound(self) -> Expectation:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min={self.min:g} is above max={self.max:g}")
        return self


class Drift(Part):
    """How far a column may drift from the version before, as a population stability index.

    From `warn` on there is a warning, from `fail` on the export fails.
    """

    warn: PositiveFloat = 0.1
    fail: PositiveFloat | None = None


class Place(Part):
    """Where in Airflow a job belongs, and the directory that its run writes to.

    `first_try` is the first of its tries since the task was last cleared, which makes a result anew.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: PositiveInt = 1
    first_try: PositiveInt = 1
    directory: str

    @property
    def task(self) -> str:
        """The task's name within the run; mapped tasks have their index in it."""
        return self.task_id if self.map_index < 0 else f"{self.task_id}.{self.map_index}"


class JobSpec(Document):
    """What every job is told. `ENTRY` is the function that runs it, as `module:name`."""

    ENTRY: ClassVar[str]
    place: Place


class ExportSpec(JobSpec):
    """Read `source`, hand it to `prepare`, write what that returns as a batch dataset.

    `splits` are fractions that sum to 1; a row's split depends on its content alone (or on the
    column `split_by`, so that one key never crosses splits), evenly within each value of `stratify`.
    `shapes` gives flat array columns the shape that they have in a batch; array columns named in
    `lists` may differ in length from row to row. With a `partition` the rows become this part of the dataset, and
    the rest stays as it is. What is not as `expect` says of a column, or has drifted too far from the version
    before, is not kept. `fingerprint` names source files, code and options, as the operator found them.
    """

    KIND: ClassVar[str] = "export spec"
    ENTRY: ClassVar[str] = "etl.export:run"

    prepare: ImportPath
    prepare_params: dict[str, Any] = {}
    source: Source
    batches: str
    partition: str | None = None
    fingerprint: str = ""
    expect: dict[str, Expectation] = {}
    drift: Drift | None = None
    splits: dict[str, PositiveFloat] = {"train": 0.8, "validation": 0.1, "test": 0.1}
    split_by: str | None = None
    stratify: str | None = None
    shapes: dict[str, tuple[PositiveInt, ...]] = {}
    lists: tuple[str, ...] = ()
    seed: int = 0
    rows_per_batch: PositiveInt = 4096
    shards: PositiveInt | None = None

    @model_validator(mode="after")
    def _sound(self) -> ExportSpec:
        total = sum(self.splits.values())
        if not math.isclose(total, 1.0, abs_tol=1e-6):
            raise ValueError(f"splits={self.splits} sum to {total:g}; fractions must sum to 1")
        if self.split_by and self.stratify:
            raise ValueError("split_by and stratify exclude each other; keep one of them")
        return self


class FeaturizeSpec(ExportSpec):
    """Export what the submodule `layer` of `model` makes of rows, as the column `features` beside their other ones."""

    KIND: ClassVar[str] = "featurize spec"
    ENTRY: ClassVar[str] = "etl.featurize:run"

    model: str
    layer: str
    features: str = "features"


class TrainOptions(Part):
    """How the loop runs. `batch_size` is the global batch: rows over all ranks before one update.

    With `bucket_by`, a list column, batches hold rows of about one length. An epoch draws as many rows as there
    are, each value of the label equally often with `balance`, or in proportion to a column of weights, `weight_by`.
    `early_stopping` is the number of epochs without improvement of `monitor` (a validation metric, or `loss`) after
    which training ends; `monitor_mode` says which way is better. `cache_gb` is what shards of remote storage may
    take on a node's disk, in GiB. Checkpoints are saved after each epoch, every `checkpoint_minutes`, and every
    `checkpoint_steps` if given; `keep_checkpoints` of them stay, beside the one of the best epoch.
    """

    epochs: PositiveInt = 10
    batch_size: PositiveInt = 64
    accumulate: PositiveInt = 1
    seed: int = 0
    bucket_by: str | None = None
    balance: bool = False
    weight_by: str | None = None
    precision: Precision = "float32"
    clip_norm: PositiveFloat | None = None
    early_stopping: PositiveInt | None = None
    monitor: str = "loss"
    monitor_mode: Literal["min", "max"] = "min"
    compile: bool = False
    cache_gb: PositiveFloat = 32.0
    checkpoint_minutes: PositiveFloat = 10.0
    checkpoint_steps: PositiveInt | None = None
    keep_checkpoints: PositiveInt = 2

    @model_validator(mode="after")
    def _sound(self) -> TrainOptions:
        if self.balance and self.weight_by:
            raise ValueError(f"balance=True and weight_by={self.weight_by!r} exclude each other; keep one of them")
        return self


def refuse_combinations(strategy: StrategyOptions, options: TrainOptions) -> None:
    """Raises ValueError when the loop cannot run so."""
    if options.precision == "float16" and not strategy.SCALED:
        raise ValueError(
            f"strategy={strategy.name!r} and precision='float16' exclude each other: the loss scale of one rank is "
            "not that of another; write precision='bfloat16'"
        )


class Mixed(Part):
    """A dataset of which `share` of the rows of each epoch are; its newest version by default."""

    batches: str
    version: PositiveInt | None = None
    share: Annotated[float, Field(gt=0, lt=1)]


class TrainSpec(JobSpec):
    """Train `recipe` from the splits `train` and `validation` of `batches` on `workers` ranks.

    `batches_version` is the newest by default; with `batches_since` only what came after that version is trained on.
    With `min_workers` on as many as there is room for, between the two. A gang that lost a rank, or in which
    nothing went on for `hang_minutes`, starts again from its last checkpoint, `restarts` times at most without
    progress in between. `tensorboard` and `mlflow`, the URI of a tracking server, follow it epoch by epoch.
    The model is also written in each of `formats`, beside the weights; with `epoch_models` each epoch's is kept.
    Rows of other datasets are mixed into those of `batches` by `mix`; these have what is left of each epoch.
    """

    KIND: ClassVar[str] = "train spec"
    ENTRY: ClassVar[str] = "trainer.gang:run"

    recipe: ImportPath
    recipe_params: dict[str, Any] = {}
    batches: str
    batches_version: PositiveInt | None = None
    batches_since: NonNegativeInt | None = None
    mix: tuple[Mixed, ...] = ()
    model: str
    workers: PositiveInt = 1
    min_workers: PositiveInt | None = None
    strategy: Strategy = Field(default="allreduce", validate_default=True)
    restarts: NonNegativeInt = 3
    hang_minutes: PositiveFloat = 15.0
    tensorboard: bool = False
    mlflow: str | None = None
    formats: Annotated[tuple[Format, ...], _listed("onnx", "mlflow")] = ()
    epoch_models: bool = False
    options: TrainOptions = TrainOptions()

    @model_validator(mode="after")
    def _sound(self) -> TrainSpec:
        if self.min_workers and self.min_workers > self.workers:
            raise ValueError(f"workers=({self.min_workers}, {self.workers}): write the smaller number first")
        if (mixed := sum(each.share for each in self.mix)) >= 1:
            raise ValueError(f"mix: its shares are {mixed:g} together; write less than 1, the rest is of batches")
        refuse_combinations(self.strategy, self.options)
        return self


class ScriptSpec(JobSpec):
    """Run the module `script` as a program on `workers` ranks, with `arguments` as its command line.

    A gang that lost a rank starts again from the script's first line, `restarts` times at most.
    """

    KIND: ClassVar[str] = "script spec"
    ENTRY: ClassVar[str] = "trainer.script:run"

    script: Module
    arguments: Arguments = ()
    workers: PositiveInt = 1
    restarts: NonNegativeInt = 0


class EvaluateSpec(JobSpec):
    """Score `model`, and the models `against` it, on one split of `batches`, in their newest version or another.

    Metrics are of all rows, and of each value of the columns `slices`. Metrics of ranking rank the rows of each value
    of `query`. `examples` rows on which the model does worst are kept, `rows_per_batch` is found if it is not given.
    """

    KIND: ClassVar[str] = "evaluate spec"
    ENTRY: ClassVar[str] = "etl.evaluate:run"

    model: str
    batches: str
    batches_version: PositiveInt | None = None
    against: tuple[str, ...] = ()
    split: str = "test"
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)]
    slices: tuple[str, ...] = ()
    query: str | None = None
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    examples: NonNegativeInt = 10
    rows_per_batch: PositiveInt | None = None


class PredictSpec(JobSpec):
    """Apply `model` to what `prepare` makes of `source`; write `keys` and the outputs.

    `postprocess` is a last change of what is written. With `partition_by`, a column, only partitions of the source that
    are new, or changed, or were predicted for by other weights are predicted for. `rows_per_batch` is found if it is
    not given.
    """

    KIND: ClassVar[str] = "predict spec"
    ENTRY: ClassVar[str] = "etl.predict:run"

    model: str
    source: Source
    prepare: ImportPath | None = None
    prepare_params: dict[str, Any] = {}
    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    postprocess: ImportPath | None = None
    postprocess_params: dict[str, Any] = {}
    output: str
    output_format: Literal["parquet", "batches", "table"] = "parquet"
    partition_by: str | None = None
    rows_per_batch: PositiveInt | None = None

    @model_validator(mode="after")
    def _sound(self) -> PredictSpec:
        if self.partition_by and self.output_format != "parquet":
            raise ValueError(f"partition_by goes with output_format='parquet', not {self.output_format!r}")
        return self


SPECS: dict[str, type[JobSpec]] = {
    spec.KIND: spec for spec in (ExportSpec, FeaturizeSpec, TrainSpec, ScriptSpec, EvaluateSpec, PredictSpec)
}
