"""How ranks agree on one model: one strategy a file, chosen by its name."""

from __future__ import annotations

from trainer.strategies.allreduce import Allreduce
from trainer.strategies.base import Strategy
from trainer.world import World

STRATEGIES: dict[str, type[Strategy]] = {"allreduce": Allreduce}


def choose(name: str, world: World) -> Strategy:
    return STRATEGIES[name](world)
