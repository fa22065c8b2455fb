"""How ranks agree on one model: one strategy a file, chosen by the name in its options."""

from __future__ import annotations

from typing import Any

from trainer.strategies.allreduce import Allreduce
from trainer.strategies.averaging import Averaging
from trainer.strategies.base import Strategy
from trainer.strategies.diloco import DiLoCo
from trainer.strategies.fsdp import FSDP
from trainer.strategies.horovod import Horovod
from trainer.strategies.threshold import Threshold
from trainer.world import World
from trainyard.contract.strategies import StrategyOptions

STRATEGIES: dict[str, type[Strategy[Any]]] = {
    "allreduce": Allreduce,
    "averaging": Averaging,
    "threshold": Threshold,
    "horovod": Horovod,
    "diloco": DiLoCo,
    "fsdp": FSDP,
}


def choose(options: StrategyOptions, world: World) -> Strategy[Any]:
    """The strategy that `options` describes, for this rank."""
    return STRATEGIES[options.name](options, world)
