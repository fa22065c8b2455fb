"""What limits a run: one sentence, of the seconds that each rank spent in each phase. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.trainer.loop.phases import COMMUNICATION_WAIT

WAIT = "data wait"
WORK = ("copy", "forward", "backward", "optimizer")
NOTABLE = 0.1
"""Shares of the time below this one limit nothing."""

LESS_TO_SEND = {
    "allreduce": (
        "strategy={'name': 'allreduce', 'compression': 'fp16'} halves what is sent, strategy='averaging' sends once "
        "in five steps, and a larger batch_size takes fewer steps"
    ),
    "horovod": "strategy='allreduce' sends while the backward pass goes on, and a larger batch_size takes fewer steps",
    "averaging": "a higher frequency averages less often, and a larger batch_size takes fewer steps",
    "threshold": "a lower density sends less, and a larger batch_size takes fewer steps",
    "diloco": "more inner_steps exchange less often",
}


@dataclass(frozen=True)
class PhaseSeconds:
    """The seconds of one rank, by phase."""

    rank: int
    host: str
    seconds: Mapping[str, float]

    @property
    def own(self) -> float:
        """Seconds in which the rank waited for no other."""
        return sum(self.seconds.get(name, 0.0) for name in (WAIT, *WORK))

    @property
    def steps(self) -> float:
        """Seconds in steps: all but validation, checkpoints and what comes before."""
        return self.own + self.seconds.get(COMMUNICATION_WAIT, 0.0)


def describe_bottleneck(ranks: Sequence[PhaseSeconds], strategy: StrategyOptions) -> str:
    """What limits the run, and the option that would help.

    A share is of the time of the slowest rank's steps: what the slowest has to do more than the median of
    the others (stragglers); the median wait for data (input); what even the rank that waits least waits for
    exchanges (communication: the others wait for stragglers too); and the rest (compute).
    """
    whole = max(rank.steps for rank in ranks)
    if whole == 0:
        return "No step was taken."
    slow = max(ranks, key=lambda rank: rank.own)
    others = [rank for rank in ranks if rank is not slow] or [slow]
    waiting = median(rank.seconds.get(WAIT, 0.0) for rank in ranks) / whole
    exchanging = min(rank.seconds.get(COMMUNICATION_WAIT, 0.0) for rank in ranks) / whole
    behind = (slow.own - median(rank.own for rank in others)) / whole
    largest = max(waiting, exchanging, behind)
    if largest < NOTABLE:
        return (
            f"Compute-bound: {1 - waiting - exchanging - behind:.0%} of the time goes into forward, backward and "
            "optimizer. More workers, precision='bfloat16' or compile=True would help."
        )
    if largest == behind:
        return (
            f"One rank holds up the others: rank {slow.rank} on {slow.host} takes {behind:.0%} longer, most of it in "
            f"{_difference(slow, others)!r}. See what else runs on {slow.host}, or keep the gang off it."
        )
    if largest == waiting:
        return (
            f"Input-bound: ranks wait for data {waiting:.0%} of the time. Move what the recipe's transform does to "
            "prepare, or, with batches on HDFS, let cache_gb hold the whole split."
        )
    return f"Communication-bound: {exchanging:.0%} of the time goes into exchanges; {LESS_TO_SEND[strategy.name]}."


def _difference(slow: PhaseSeconds, others: Sequence[PhaseSeconds]) -> str:
    """The phase in which `slow` is slower than the others most of all."""

    def more(phase: str) -> float:
        return slow.seconds.get(phase, 0.0) - median(rank.seconds.get(phase, 0.0) for rank in others)

    return max((WAIT, *WORK), key=more)
