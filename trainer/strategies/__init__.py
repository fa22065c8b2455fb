"""Distributed training strategies: one a file, selected by the name in its options."""

from __future__ import annotations

from typing import Any

from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.trainer.strategies.allreduce import Allreduce
from trainyard.trainer.strategies.averaging import Averaging
from trainyard.trainer.strategies.base import Strategy
from trainyard.trainer.strategies.diloco import DiLoCo
from trainyard.trainer.strategies.fsdp import FSDP
from trainyard.trainer.strategies.horovod import Horovod
from trainyard.trainer.strategies.threshold import Threshold
from trainyard.trainer.world import World

STRATEGIES: dict[str, type[Strategy[Any]]] = {
    "allreduce": Allreduce,
    "averaging": Averaging,
    "threshold": Threshold,
    "horovod": Horovod,
    "diloco": DiLoCo,
    "fsdp": FSDP,
}


def build_strategy(options: StrategyOptions, world: World) -> Strategy[Any]:
    """Return the strategy of some options, for this worker."""
    return STRATEGIES[options.name](options, world)
