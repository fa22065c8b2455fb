"""The spec of the training job."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from trainyard.schemas.document import Part
from trainyard.schemas.specs.fields import Format, ImportPath, Precision, _listed
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.strategies import Strategy, StrategyOptions


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
    micro_batches: PositiveInt = 1
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

    dataset: str
    version: PositiveInt | None = None
    share: Annotated[float, Field(gt=0, lt=1)]


class TrainSpec(JobSpec):
    """Train `recipe` from the splits `train` and `validation` of `dataset` on `workers` ranks.

    `dataset_version` is the newest by default; with `dataset_since` only what came after that version is trained on.
    With `min_workers` on as many as there is room for, between the two. A gang that lost a rank, or in which
    nothing went on for `hang_minutes`, starts again from its last checkpoint, `max_restarts` times at most without
    progress in between. `tensorboard` and `mlflow`, the URI of a tracking server, follow it epoch by epoch.
    The model is also written in each of `formats`, beside the weights; with `epoch_models` each epoch's is kept.
    Rows of other datasets are mixed into those of `dataset` by `mix`; these have what is left of each epoch.
    """

    KIND: ClassVar[str] = "train spec"
    ENTRY: ClassVar[str] = "trainyard.trainer.group.supervisor:run"

    recipe: ImportPath
    recipe_params: dict[str, Any] = {}
    dataset: str
    dataset_version: PositiveInt | None = None
    dataset_since: NonNegativeInt | None = None
    mix: tuple[Mixed, ...] = ()
    model: str
    workers: PositiveInt = 1
    min_workers: PositiveInt | None = None
    strategy: Strategy = Field(default="allreduce", validate_default=True)
    max_restarts: NonNegativeInt = 3
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
            raise ValueError(f"mix: its shares are {mixed:g} together; write less than 1, the rest is of dataset")
        refuse_combinations(self.strategy, self.options)
        return self
