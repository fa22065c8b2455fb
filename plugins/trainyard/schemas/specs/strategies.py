"""How ranks agree on one model: the options of each strategy, by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Union, get_args

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from trainyard.schemas.document import Part


class StrategyOptions(Part):
    """What all have in common. `SCALED` says whether the gradients may carry the scale of a GradScaler (float16)."""

    SCALED: ClassVar[bool] = False

    name: str


class Allreduce(StrategyOptions):
    """The mean of the gradients over all ranks at every step.

    `compression` halves what is sent (`fp16`, `bf16`), or sends each gradient matrix as one of rank
    `powersgd_rank`, what is lost being made good in later steps (PowerSGD, arXiv 1905.13727); its first
    `powersgd_start` steps send all. Gradients are sent in buckets of `bucket_mb` MiB while the backward pass
    goes on.
    """

    SCALED: ClassVar[bool] = True

    name: Literal["allreduce"] = "allreduce"
    compression: Literal["fp16", "bf16", "powersgd"] | None = None
    powersgd_rank: PositiveInt = 1
    powersgd_start: Annotated[int, Field(ge=2)] = 1000
    bucket_mb: PositiveFloat = 25.0


class Horovod(StrategyOptions):
    """As allreduce, by Horovod's own optimizer and communication."""

    SCALED: ClassVar[bool] = True

    name: Literal["horovod"] = "horovod"
    compression: Literal["fp16"] | None = None


class Averaging(StrategyOptions):
    """Each rank takes `frequency` steps by itself; then the ranks' parameters are averaged.

    So is the state of their optimizers, or it begins anew after each averaging (`optimizer_state`). The first
    `warmup` steps are averaged one by one.
    """

    name: Literal["averaging"] = "averaging"
    frequency: PositiveInt = 5
    optimizer_state: Literal["average", "reset"] = "average"
    warmup: Annotated[int, Field(ge=0)] = 0


class Threshold(StrategyOptions):
    """Gradient sharing after Strom (Interspeech 2015): what exceeds a threshold is sent as its sign alone.

    The rest stays with the rank, for later steps. The threshold, `initial` at first, adapts itself so that
    about the fraction `density` of the gradient's elements exceeds it; no more are sent, the largest first.
    Every `clip_every` steps the rest is clipped to `clip` thresholds.
    """

    name: Literal["threshold"] = "threshold"
    initial: PositiveFloat = 1e-3
    density: Annotated[float, Field(gt=0, le=0.25)] = 0.005
    clip: PositiveFloat = 5.0
    clip_every: PositiveInt = 5


class DiLoCo(StrategyOptions):
    """`inner_steps` steps by each rank; the mean of what they changed is the gradient of an outer optimizer.

    That is SGD with Nesterov momentum (arXiv 2311.08105).
    """

    name: Literal["diloco"] = "diloco"
    inner_steps: PositiveInt = 100
    outer_learning_rate: PositiveFloat = 0.7
    outer_momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9


class FSDP(StrategyOptions):
    """Parameters, gradients and optimizer state are sharded over the ranks, for models larger than a device.

    The modules whose class is named in `wrap` are gathered one at a time; without names, each module that lies
    in a `ModuleList` or `Sequential`.
    """

    name: Literal["fsdp"] = "fsdp"
    wrap: tuple[str, ...] = ()


AnyStrategy = Union[Allreduce, Averaging, Threshold, Horovod, DiLoCo, FSDP]  # noqa: UP007
NAMES: tuple[str, ...] = tuple(part.model_fields["name"].default for part in get_args(AnyStrategy))


def _named(value: Any) -> Any:
    """A name alone stands for the strategy with its defaults."""
    if isinstance(value, StrategyOptions):
        return value
    name = value.get("name") if isinstance(value, Mapping) else value
    if name not in NAMES:
        raise ValueError(f"known strategies are {', '.join(NAMES)}; their options go in a dict with a 'name'")
    return value if isinstance(value, Mapping) else {"name": value}


Strategy = Annotated[AnyStrategy, Field(discriminator="name"), BeforeValidator(_named)]
"""A strategy's options; also as a dict, or its name alone."""
