"""Distributed training strategies: one a file, selected by the name in its options."""

from __future__ import annotations

from typing import Any

from trainyard.errors import TrainyardError
from trainyard.schemas.specs.fields import Precision
from trainyard.schemas.specs.strategies import OwnStrategy, StrategyOptions
from trainyard.schemas.validation.params import convert_texts
from trainyard.trainer.strategies.allreduce import Allreduce
from trainyard.trainer.strategies.averaging import Averaging
from trainyard.trainer.strategies.base import Strategy
from trainyard.trainer.strategies.diloco import DiLoCo
from trainyard.trainer.strategies.fsdp import FSDP
from trainyard.trainer.strategies.horovod import Horovod
from trainyard.trainer.strategies.threshold import Threshold
from trainyard.trainer.user_code import import_object
from trainyard.trainer.world import World

STRATEGIES: dict[str, type[Strategy[Any]]] = {
    "allreduce": Allreduce,
    "averaging": Averaging,
    "threshold": Threshold,
    "horovod": Horovod,
    "diloco": DiLoCo,
    "fsdp": FSDP,
}


def build_strategy(options: StrategyOptions, world: World, precision: Precision = "float32") -> Strategy[Any]:
    """Return the strategy of some options, for this worker.

    Args:
        options: The options.
        world: The workers.
        precision: The precision of the training. Built-in strategies are checked with the options.

    Raises:
        TrainyardError: The class of an own strategy cannot be imported or called, is no strategy, or does not work with
            this precision.
    """
    if not isinstance(options, OwnStrategy):
        return STRATEGIES[options.name](options, world)
    kind = _find_class(options.name)
    if precision not in kind.precisions:
        raise TrainyardError(
            f"strategy={options.name!r} works with precision={' or '.join(map(repr, kind.precisions))}, and not with "
            f"{precision!r}; write one of them. If it does, write `precisions = {(*kind.precisions, precision)}` into "
            "the class."
        )
    try:
        return kind(options, world, **convert_texts("strategy.params", kind.__init__, options.params))
    except TypeError as error:
        raise TrainyardError(f"strategy {options.name!r} with params={options.params}: {error}.") from error


def _find_class(path: str) -> type[Strategy[Any]]:
    found, name = import_object("strategy", path), path.partition(":")[2]
    if not (isinstance(found, type) and issubclass(found, Strategy)):
        raise TrainyardError(
            f"strategy {path!r} is no strategy. Write `class {name}(Strategy)`, with "
            "trainyard.trainer.strategies.base.Strategy."
        )
    return found
