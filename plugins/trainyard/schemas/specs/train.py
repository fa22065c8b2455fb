"""The spec of the training job."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainyard.schemas.document import Part
from trainyard.schemas.references import Reference, find_results, refer_to_model
from trainyard.schemas.results import ModelResult
from trainyard.schemas.specs.fields import (
    Format,
    ImportPath,
    Inlined,
    Location,
    Model,
    Name,
    Output,
    Params,
    Precision,
    Workers,
    refuse_string,
)
from trainyard.schemas.specs.job import GroupSpec
from trainyard.schemas.specs.strategies import FSDP, Allreduce, OwnStrategy, Strategy, StrategyOptions
from trainyard.schemas.validation.complaints import NOT_GIVEN


class TrainOptions(Part):
    """Options of the training loop."""

    fold: PositiveInt | None = None
    """The number of the fold, from 1, that validates a model trained on all others: cross-validation of a dataset that
    was exported with `folds=`. None uses the splits `train` and `validation`."""
    epochs: PositiveInt = 10
    """Passes over the split `train`."""
    batch_size: PositiveInt = 64
    """The global batch: rows over all workers before one update."""
    micro_batches: PositiveInt = 1
    """In how many parts each worker processes its rows of a batch, to save memory. It splits the global batch;
    Horovod's and Lightning's gradient accumulation multiply it."""
    seed: int = 0
    """The seed of the order of rows and of the initial weights."""
    bucket_by: Name | None = None
    """A variable-length column; batches then have rows of similar length, with less padding."""
    balance: bool = False
    """Whether an epoch draws each value of the recipe's label equally often."""
    weight_by: Name | None = None
    """The column of weights in proportion to which rows are drawn."""
    precision: Precision = "float32"
    """`float32`, `bfloat16` or `float16`, for the forward and backward pass."""
    clip_norm: PositiveFloat | None = None
    """The largest norm of the gradient."""
    early_stopping: PositiveInt | None = None
    """Epochs without improvement of `monitor` after which training ends."""
    monitor: Name = "loss"
    """A validation metric, or `loss`."""
    monitor_mode: Literal["min", "max"] | None = None
    """Whether a smaller (`min`) or larger (`max`) `monitor` is better. By default the metric says so itself
    (`higher_is_better` of torchmetrics), and one that does not is refused; a loss is better when it is smaller."""
    compile: bool = False
    """Whether to apply torch.compile to the model."""
    cache_gb: PositiveFloat = 32.0
    """Disk space on each node for shards of remote storage, in GiB. A larger split is read by ranges in each epoch."""
    gpu_cache_gb: NonNegativeFloat = 0.0
    """GPU memory of each worker for the whole split `train`, in GiB, from which batches are then taken without the CPU;
    0 for none. A larger split is read as without."""
    checkpoint_minutes: PositiveFloat = 10.0
    """A checkpoint is saved this often, and after each epoch."""
    checkpoint_steps: PositiveInt | None = None
    """A checkpoint is also saved after so many updates, if given."""
    keep_checkpoints: PositiveInt = 2
    """How many checkpoints are kept, beside the one of the best epoch."""

    @model_validator(mode="after")
    def _check_consistency(self) -> TrainOptions:
        if self.balance and self.weight_by:
            raise ValueError(f"balance=True and weight_by={self.weight_by!r} exclude each other; remove one of them")
        return self


def refuse_combinations(strategy: StrategyOptions, options: TrainOptions) -> None:
    """Raise ValueError for a strategy and options that exclude each other. Workers check a strategy of the user's."""
    if options.precision == "float16" and not (strategy.SCALED or isinstance(strategy, OwnStrategy)):
        raise ValueError(
            f"strategy={strategy.name!r} and precision='float16' exclude each other: the loss scale may differ "
            "between workers; write precision='bfloat16'"
        )
    if options.precision == "float16" and isinstance(strategy, Allreduce) and strategy.compression == "powersgd":
        raise ValueError(
            "compression='powersgd' and precision='float16' exclude each other: the error feedback would keep the "
            "infinite values of a step whose loss scale was too large; write precision='bfloat16'"
        )


def refuse_in_loop(strategy: StrategyOptions, options: TrainOptions, epoch_models: bool) -> None:
    """Raise ValueError for a strategy and options that a loop of the user's own does not have."""
    if strategy != Allreduce() and not isinstance(strategy, FSDP):
        raise ValueError(
            f"strategy={strategy.name!r} with loop=: a loop averages gradients at each step; write "
            "strategy='allreduce' without options of it, strategy='fsdp', or a recipe="
        )
    if options.clip_norm:
        raise ValueError("clip_norm with loop=: call torch.nn.utils.clip_grad_norm_ before the step of the optimizer")
    if options.compile:
        raise ValueError("compile=True with loop=: call torch.compile in the loop")
    if epoch_models:
        raise ValueError("epoch_models=True with loop=: a loop publishes one model; write a recipe=")


class Mixed(Part):
    """A dataset whose rows are mixed in."""

    dataset: Location
    """The dataset: a name below the storage root, a URI, or `export.output`, which also sets the version."""
    version: PositiveInt | None = None
    """Its version, by default the newest."""
    share: Annotated[float, Field(gt=0, lt=1)]
    """The fraction of each epoch's rows."""


class TrainSpec(GroupSpec):
    """Train a recipe, or a loop of the user's own, on a group of workers."""

    KIND: ClassVar[str] = "train spec"
    ENTRY: ClassVar[str] = "trainyard.trainer.group.supervisor:run"
    RESULT = ModelResult

    recipe: ImportPath | None = None
    """`module:name` of the function that returns the `Recipe`; either this or `loop`."""
    loop: ImportPath | None = None
    """`module:name` of a function with a training loop of your own, which gets a `trainyard.trainer.Run`."""
    loop_params: Params = {}
    """The keyword arguments of `loop`. The result of another task becomes its `uri`."""
    recipe_params: Params = {}
    """The keyword arguments of `recipe`. The result of another task becomes its `uri`."""
    start_from: Model | None = None
    """A model whose weights the training begins with: a name below the storage root, a URI, `NAME@1a2b` for one of its
    versions, `train.output`, or a file `.safetensors`. One that does not exist yet, such as the first champion, means
    new weights. Of a loop it is for the first network of `run.model`."""
    dataset: Location
    """The dataset: a name below the storage root, a URI, or `export.output`, which also sets the version."""
    dataset_version: PositiveInt | None = None
    """The version to train on. By default the newest."""
    dataset_since: NonNegativeInt | Model | None = None
    """Train only on what was added after this version, or after the one that a model was trained on; one that does not
    exist yet means all."""
    mix: tuple[Mixed, ...] = ()
    """Other datasets whose rows are mixed in, as dicts of `dataset`, `share` (the fraction of an epoch's rows) and
    `version` (default: the newest). Validation uses `dataset` alone."""
    model: Output
    """Where the model is written: a name below the storage root, or a URI. By default `DAG_ID/TASK_ID`, with the index
    of a mapped task."""
    workers: Workers = 1
    """The number of workers. Each needs a slot (a core, or a GPU), all at once. A pair (min, max) uses as many as there
    is room for; the global batches, and so the result, stay the same."""
    strategy: Strategy = Field(default="allreduce", validate_default=True)
    """The distributed strategy: allreduce, averaging, threshold, horovod, diloco or fsdp; or a dict with this as `name`
    and the strategy's options (`trainyard.schemas.specs.strategies`)."""
    max_restarts: NonNegativeInt = 3
    """How often the group restarts from its last checkpoint without progress in between, as torchrun's option of this
    name."""
    hang_minutes: PositiveFloat = 15.0
    """A group without progress for this long is ended and restarted."""
    formats: Annotated[tuple[Format, ...], refuse_string("onnx", "mlflow")] = ()
    """Formats to write the model in too: `onnx`, `pt2` (torch.export) or `mlflow`, which `registered_model_name` of
    a tracker adds."""
    epoch_models: bool = False
    """Whether the model of each epoch is kept. `train.output["epoch_models"]` lists their results, for `model=` and
    `baselines=`."""
    options: Annotated[TrainOptions, Inlined()] = TrainOptions()
    """Options of the training loop."""

    @model_validator(mode="after")
    def _check_consistency(self) -> TrainSpec:
        if (mixed := sum(each.share for each in self.mix)) >= 1:
            raise ValueError(
                f"mix: the shares sum to {mixed:g}; they must sum to less than 1, the rest is from dataset"
            )
        if self.recipe and self.loop:
            raise ValueError("write recipe= or loop=, 'module:function'; both are given")
        if not (self.recipe or self.loop):
            raise PydanticCustomError(NOT_GIVEN, "write recipe= or loop=, 'module:function'; neither is given")
        if self.loop and self.recipe_params:
            raise ValueError("recipe_params are those of recipe=; write loop_params= for loop=")
        if self.loop_params and self.recipe:
            raise ValueError("loop_params are those of loop=; write recipe_params= for recipe=")
        refuse_combinations(self.strategy, self.options)
        if self.loop:
            refuse_in_loop(self.strategy, self.options, self.epoch_models)
        return self

    @property
    def all_formats(self) -> tuple[Format, ...]:
        """The formats to write the model in, also those that trackers register."""
        registers = any(tracker.registered_model_name for tracker in self.trackers)
        return tuple(dict.fromkeys((*self.formats, "mlflow"))) if registers else self.formats

    def references(self) -> Iterator[Reference]:
        """Yield the versions of the datasets, and what the parameters name."""
        yield Reference(self.dataset, self.dataset_version)
        yield from (Reference(mixed.dataset, mixed.version) for mixed in self.mix)
        yield from (refer_to_model(name) for name in (self.start_from, self.dataset_since) if isinstance(name, str))
        yield from find_results(self.recipe_params)
        yield from find_results(self.loop_params)
        if isinstance(self.strategy, OwnStrategy):
            yield from find_results(self.strategy.params)
