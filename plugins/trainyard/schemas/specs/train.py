"""The spec of the training job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from trainyard.schemas.document import Part
from trainyard.schemas.references import Reference, find_results
from trainyard.schemas.results import ModelResult
from trainyard.schemas.specs.fields import (
    Format,
    ImportPath,
    Location,
    MLflowServer,
    Name,
    Params,
    Precision,
    refuse_string,
)
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.strategies import Allreduce, Strategy, StrategyOptions


class TrainOptions(Part):
    """Options of the training loop.

    Attributes:
        fold: The fold that validates, from 1; the others are trained on. None uses `train` and `validation`.
        epochs: Passes over the split `train`.
        batch_size: The global batch: rows over all workers before one update.
        micro_batches: In how many parts each worker processes its rows of a batch.
        seed: The seed of the order of rows and of the initial weights.
        bucket_by: A variable-length column; batches then have rows of similar length.
        balance: Whether an epoch draws each value of the label equally often.
        weight_by: A column of weights in proportion to which rows are drawn.
        precision: The precision of the forward and backward pass.
        clip_norm: The largest norm of the gradient.
        early_stopping: Epochs without improvement of `monitor` after which training ends.
        monitor: A validation metric, or `loss`.
        monitor_mode: Whether a smaller (`min`) or a larger (`max`) `monitor` is better. By default the metric says so
            itself (`higher_is_better` of torchmetrics), and one that does not is refused; a loss is better when it is
            smaller.
        compile: Whether to apply torch.compile.
        cache_gb: Disk space on each node for shards of remote storage, in GiB.
        gpu_cache_gb: GPU memory of each worker for the split `train`, in GiB.
        checkpoint_minutes: Minutes between checkpoints; one is also saved after each epoch.
        checkpoint_steps: Updates between checkpoints, if given.
        keep_checkpoints: How many checkpoints are kept, beside the one of the best epoch.
    """

    fold: PositiveInt | None = None
    epochs: PositiveInt = 10
    batch_size: PositiveInt = 64
    micro_batches: PositiveInt = 1
    seed: int = 0
    bucket_by: Name | None = None
    balance: bool = False
    weight_by: Name | None = None
    precision: Precision = "float32"
    clip_norm: PositiveFloat | None = None
    early_stopping: PositiveInt | None = None
    monitor: Name = "loss"
    monitor_mode: Literal["min", "max"] | None = None
    compile: bool = False
    cache_gb: PositiveFloat = 32.0
    gpu_cache_gb: NonNegativeFloat = 0.0
    checkpoint_minutes: PositiveFloat = 10.0
    checkpoint_steps: PositiveInt | None = None
    keep_checkpoints: PositiveInt = 2

    @model_validator(mode="after")
    def _check_consistency(self) -> TrainOptions:
        if self.balance and self.weight_by:
            raise ValueError(f"balance=True and weight_by={self.weight_by!r} exclude each other; remove one of them")
        return self


def refuse_combinations(strategy: StrategyOptions, options: TrainOptions) -> None:
    """Raise ValueError for a strategy and options that exclude each other."""
    if options.precision == "float16" and not strategy.SCALED:
        raise ValueError(
            f"strategy={strategy.name!r} and precision='float16' exclude each other: the loss scale differs "
            "between workers; write precision='bfloat16'"
        )
    if options.precision == "float16" and isinstance(strategy, Allreduce) and strategy.compression == "powersgd":
        raise ValueError(
            "compression='powersgd' and precision='float16' exclude each other: the error feedback would keep the "
            "infinite values of a step whose loss scale was too large; write precision='bfloat16'"
        )


class Mixed(Part):
    """A dataset whose rows are the fraction `share` of each epoch; by default its newest version."""

    dataset: Location
    version: PositiveInt | None = None
    share: Annotated[float, Field(gt=0, lt=1)]


class TrainSpec(JobSpec):
    """Train a recipe on a group of workers.

    Attributes:
        recipe: The function that returns the recipe, `module:name`.
        recipe_params: Its keyword arguments.
        dataset: The URI of the dataset; its splits `train` and `validation` are used.
        dataset_version: The version of the dataset, by default the newest.
        dataset_since: Train only on what was added after this version.
        mix: Datasets whose rows are mixed in. `dataset` has the rest of each epoch.
        model: The URI of the model.
        workers: The number of workers, or the largest number with `min_workers`.
        min_workers: The smallest number of workers to start with.
        strategy: The distributed strategy.
        max_restarts: How often the group restarts from its last checkpoint without progress in between.
        hang_minutes: Minutes without progress after which the group is restarted.
        tensorboard: Whether to write TensorBoard event files.
        mlflow: The URI of an MLflow tracking server.
        formats: Formats that the model is also written in.
        epoch_models: Whether the model of each epoch is kept.
        options: Options of the training loop.
    """

    KIND: ClassVar[str] = "train spec"
    ENTRY: ClassVar[str] = "trainyard.trainer.group.supervisor:run"
    RESULT = ModelResult
    HAS_HEARTBEATS = True

    recipe: ImportPath
    recipe_params: Params = {}
    dataset: Location
    dataset_version: PositiveInt | None = None
    dataset_since: NonNegativeInt | None = None
    mix: tuple[Mixed, ...] = ()
    model: Location
    workers: PositiveInt = 1
    min_workers: PositiveInt | None = None
    strategy: Strategy = Field(default="allreduce", validate_default=True)
    max_restarts: NonNegativeInt = 3
    hang_minutes: PositiveFloat = 15.0
    tensorboard: bool = False
    mlflow: MLflowServer | None = None
    formats: Annotated[tuple[Format, ...], refuse_string("onnx", "mlflow")] = ()
    epoch_models: bool = False
    options: TrainOptions = TrainOptions()

    @model_validator(mode="after")
    def _check_consistency(self) -> TrainSpec:
        if self.min_workers and self.min_workers > self.workers:
            raise ValueError(f"workers=({self.min_workers}, {self.workers}): write the smaller number first")
        if (mixed := sum(each.share for each in self.mix)) >= 1:
            raise ValueError(
                f"mix: the shares sum to {mixed:g}; they must sum to less than 1, the rest is from dataset"
            )
        refuse_combinations(self.strategy, self.options)
        return self

    def references(self) -> Iterator[Reference]:
        """Yield the versions of the datasets, and what the parameters name."""
        yield Reference(self.dataset, self.dataset_version)
        yield from (Reference(mixed.dataset, mixed.version) for mixed in self.mix)
        yield from find_results(self.recipe_params)
