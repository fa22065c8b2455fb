"""The options of each distributed training strategy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PositiveFloat,
    PositiveInt,
    Tag,
    model_validator,
)

from trainyard.schemas.document import Part
from trainyard.schemas.specs.fields import Kind, Params, check_import_path

OWN = "own"
"""The tag of the options of a strategy that is not built in."""


class StrategyOptions(Part):
    """Options of all strategies."""

    SCALED: ClassVar[bool] = False
    """Whether gradients may have a GradScaler's scale (float16)."""
    CONTIGUOUS: ClassVar[bool] = False
    """Whether it communicates only parameters and buffers that are contiguous."""
    OWN_MEMORY: ClassVar[bool] = False
    """Whether it gives each parameter a memory of its own."""
    LESS_COMMUNICATION: ClassVar[str] = ""
    """What makes it communicate less, for a training whose workers wait for it; "" if it does not measure that."""

    name: str


class Allreduce(StrategyOptions):
    """Average the gradients over all workers at every step."""

    SCALED: ClassVar[bool] = True
    LESS_COMMUNICATION: ClassVar[str] = (
        "strategy={'name': 'allreduce', 'compression': 'fp16'} halves the bytes, strategy='averaging' communicates "
        "once in five steps, and a larger batch_size takes fewer steps"
    )

    name: Literal["allreduce"] = "allreduce"
    compression: Literal["fp16", "bf16", "powersgd"] | None = None
    """`fp16` and `bf16` halve the bytes. `powersgd` sends low-rank approximations of gradient matrices, and corrects
    the error in later steps (PowerSGD, arXiv 1905.13727)."""
    powersgd_rank: PositiveInt = 1
    """The rank of the approximation."""
    powersgd_start: Annotated[int, Field(ge=2)] = 1000
    """How many of the first steps are sent uncompressed."""
    bucket_mb: PositiveFloat = 25.0
    """The size of gradient buckets in MiB. Buckets are sent while the backward pass continues."""
    find_unused_parameters: bool = False
    """Whether steps may leave parameters without a gradient, as branches of the forward pass do. Each step then looks
    for them, which takes time."""

    @model_validator(mode="after")
    def _check_powersgd(self) -> Allreduce:
        if self.compression == "powersgd" and self.find_unused_parameters:
            raise ValueError(
                "compression='powersgd' and find_unused_parameters exclude each other: the collectives of both abort a "
                "process on gloo. Write compression='fp16'"
            )
        return self


class Horovod(StrategyOptions):
    """Average the gradients with Horovod's optimizer and communication."""

    SCALED: ClassVar[bool] = True
    CONTIGUOUS: ClassVar[bool] = True
    LESS_COMMUNICATION: ClassVar[str] = (
        "strategy='allreduce' overlaps communication with the backward pass, and a larger batch_size takes fewer steps"
    )

    name: Literal["horovod"] = "horovod"
    compression: Literal["fp16"] | None = None
    """`fp16` halves the bytes."""


class Averaging(StrategyOptions):
    """Average the parameters every few steps (local SGD)."""

    LESS_COMMUNICATION: ClassVar[str] = (
        "a higher frequency averages less often, and a larger batch_size takes fewer steps"
    )

    name: Literal["averaging"] = "averaging"
    frequency: PositiveInt = 5
    """Steps between two averagings."""
    optimizer_state: Literal["average", "reset"] = "average"
    """Whether the optimizers' state is averaged too, or reset after each averaging."""
    warmup: Annotated[int, Field(ge=0)] = 0
    """How many of the first steps are averaged one by one."""


class Threshold(StrategyOptions):
    """Take each worker's step, and send only its largest elements (Strom, Interspeech 2015).

    The rest is kept and added to later steps. The threshold of elements that are sent adapts to `density`.
    """

    LESS_COMMUNICATION: ClassVar[str] = "a lower density sends less, and a larger batch_size takes fewer steps"

    name: Literal["threshold"] = "threshold"
    density: Annotated[float, Field(gt=0, le=0.25)] = 0.01
    """The largest fraction of elements that is sent."""


class DiLoCo(StrategyOptions):
    """Take `inner_steps` steps on each worker, then one step of an outer optimizer (DiLoCo, arXiv 2311.08105).

    The outer gradient is the mean of the workers' changes; the outer optimizer is SGD with Nesterov momentum.
    """

    LESS_COMMUNICATION: ClassVar[str] = "more inner_steps communicate less often"

    name: Literal["diloco"] = "diloco"
    inner_steps: PositiveInt = 100
    """Steps of each worker between two synchronizations."""
    outer_learning_rate: PositiveFloat = 0.7
    """The learning rate of the outer optimizer."""
    outer_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Its momentum."""


class FSDP(StrategyOptions):
    """Shard parameters, gradients and optimizer state over the workers, for models larger than a device."""

    OWN_MEMORY: ClassVar[bool] = True

    name: Literal["fsdp"] = "fsdp"
    wrap: tuple[str, ...] = ()
    """Names of module classes that are gathered one at a time. By default each module in a `ModuleList` or
    `Sequential`."""


class OwnStrategy(StrategyOptions):
    """A strategy of your own: a subclass of `trainyard.trainer.strategies.base.Strategy` beside the DAG."""

    name: Annotated[str, AfterValidator(check_import_path)]
    """The import path of the class, "module:name"."""
    params: Params = {}
    """Keyword arguments of the class, after its options and the world."""


AnyStrategy = (
    Annotated[Allreduce, Tag("allreduce")]
    | Annotated[Averaging, Tag("averaging")]
    | Annotated[Threshold, Tag("threshold")]
    | Annotated[Horovod, Tag("horovod")]
    | Annotated[DiLoCo, Tag("diloco")]
    | Annotated[FSDP, Tag("fsdp")]
    | Annotated[OwnStrategy, Tag(OWN)]
)
BUILT_IN: Mapping[str, type[StrategyOptions]] = {
    tag.tag: kind for kind, tag in map(get_args, get_args(AnyStrategy)) if tag.tag != OWN
}
"""The options of each strategy by its name."""


def get_name(value: Any) -> Any:
    """Return the name in a strategy's options, which are an object, a dict, or the name."""
    if isinstance(value, StrategyOptions):
        return value.name
    return value.get("name") if isinstance(value, Mapping) else value


def is_own(name: Any) -> bool:
    """Return whether a strategy's name is the import path of a class."""
    return isinstance(name, str) and ":" in name


def _named(value: Any) -> Any:
    """Replace the name of a strategy by its default options."""
    name = get_name(value)
    if not (isinstance(name, str) and (is_own(name) or name in BUILT_IN)):
        raise ValueError(
            f"known strategies are {', '.join(BUILT_IN)}, and 'module:Class' for one of your own; their options go in "
            "a dict with a 'name'"
        )
    return value if isinstance(value, StrategyOptions | Mapping) else {"name": value}


def _get_tag(value: Any) -> str:
    name = get_name(value)
    return OWN if is_own(name) else str(name)


Strategy = Annotated[AnyStrategy, Discriminator(_get_tag), BeforeValidator(_named), Kind.STRATEGY]
"""A strategy's options, as an object, a dict, or the strategy's name."""
