"""Job specs: everything a job is told, as one document that both sides validate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from trainyard.contract.document import Document, Part
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


def _listed(value: Any) -> Any:
    if isinstance(value, str):
        raise ValueError("write a list of strings, for example ['--epochs', '3']")
    return value


def _texts(value: Any) -> Any:
    """Values as the manifest counts them."""
    if isinstance(value, str | Mapping):
        raise ValueError("write a list of values, for example ['cat', 'dog']")
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in value]


ImportPath = Annotated[str, AfterValidator(_import_path)]
"""Where user code lies: `package.module:function`."""

Module = Annotated[str, AfterValidator(_module)]
"""A user's program: `package.module`."""

Arguments = Annotated[tuple[str, ...], BeforeValidator(_listed)]
"""A program's command line, word by word."""

Metric = Literal["accuracy", "precision", "recall", "f1", "auroc", "confusion_matrix", "mae", "mse", "rmse", "r2"]
METRICS: tuple[str, ...] = get_args(Metric)

Precision = Literal["float32", "bfloat16", "float16"]


class Source(Part):
    """What Spark reads: a format of `spark.read`, its options, and a path for those that have one."""

    format: str
    path: str | None = None
    options: dict[str, str] = {}


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
    """Where in Airflow a job belongs, and the directory that its run writes to."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    try_number: PositiveInt = 1
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


class TrainOptions(Part):
    """How the loop runs. `batch_size` is the global batch: rows over all ranks before one update.

    `early_stopping` is the number of epochs without improvement of `monitor` (a validation metric,
    or `loss`) after which training ends; `monitor_mode` says which way is better. `cache_gb` is what shards
    of remote storage may take on a node's disk, in GiB. Checkpoints are saved after each epoch, every
    `checkpoint_minutes`, and every `checkpoint_steps` if given; `keep_checkpoints` of them stay, beside the
    one of the best epoch.
    """

    epochs: PositiveInt = 10
    batch_size: PositiveInt = 64
    accumulate: PositiveInt = 1
    seed: int = 0
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


def refuse_combinations(strategy: StrategyOptions, options: TrainOptions) -> None:
    """Raises ValueError when the loop cannot run so."""
    if options.precision == "float16" and not strategy.SCALED:
        raise ValueError(
            f"strategy={strategy.name!r} and precision='float16' exclude each other: the loss scale of one rank is "
            "not that of another; write precision='bfloat16'"
        )


class TrainSpec(JobSpec):
    """Train `recipe` from the splits `train` and `validation` of `batches` on `workers` ranks.

    `batches_version` is the newest by default; with `batches_since` only what came after that version is trained on.
    With `min_workers` on as many as there is room for, between the two. A gang that lost a rank, or in which
    nothing went on for `hang_minutes`, starts again from its last checkpoint, `restarts` times at most without
    progress in between. `tensorboard` and `mlflow`, the URI of a tracking server, follow it epoch by epoch.
    """

    KIND: ClassVar[str] = "train spec"
    ENTRY: ClassVar[str] = "trainer.gang:run"

    recipe: ImportPath
    recipe_params: dict[str, Any] = {}
    batches: str
    batches_version: PositiveInt | None = None
    batches_since: NonNegativeInt | None = None
    model: str
    workers: PositiveInt = 1
    min_workers: PositiveInt | None = None
    strategy: Strategy = Field(default="allreduce", validate_default=True)
    restarts: NonNegativeInt = 3
    hang_minutes: PositiveFloat = 15.0
    tensorboard: bool = False
    mlflow: str | None = None
    options: TrainOptions = TrainOptions()

    @model_validator(mode="after")
    def _sound(self) -> TrainSpec:
        if self.min_workers and self.min_workers > self.workers:
            raise ValueError(f"workers=({self.min_workers}, {self.workers}): write the smaller number first")
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
    """Score `model` on one split of `batches`, in their newest version or another."""

    KIND: ClassVar[str] = "evaluate spec"
    ENTRY: ClassVar[str] = "etl.evaluate:run"

    model: str
    batches: str
    batches_version: PositiveInt | None = None
    split: str = "test"
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)]
    rows_per_batch: PositiveInt = 4096


class PredictSpec(JobSpec):
    """Apply `model` to what `prepare` makes of `source`; write `keys` and the outputs as Parquet."""

    KIND: ClassVar[str] = "predict spec"
    ENTRY: ClassVar[str] = "etl.predict:run"

    model: str
    source: Source
    prepare: ImportPath | None = None
    prepare_params: dict[str, Any] = {}
    keys: Annotated[tuple[str, ...], Field(min_length=1)]
    output: str
    rows_per_batch: PositiveInt = 4096


SPECS: dict[str, type[JobSpec]] = {
    spec.KIND: spec for spec in (ExportSpec, TrainSpec, ScriptSpec, EvaluateSpec, PredictSpec)
}
