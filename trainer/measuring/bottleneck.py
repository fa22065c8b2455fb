"""Describe the bottleneck of a training, and what costs most after it, from the seconds of each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainyard.schemas.runs.phases import Phase, computes
from trainyard.schemas.specs.strategies import StrategyOptions

COMPUTE = tuple(phase for phase in Phase if phase.in_step and computes(phase))
MIN_MENTIONED_SHARE = 0.01
"""A smaller share is not mentioned."""
MIN_ADVISED_SHARE = 0.1
"""For a smaller share there is no advice, unless it is the largest."""
MIN_ADVISED_SECONDS = 10.0
"""For what cost less there is no advice."""


@dataclass(frozen=True)
class PhaseSeconds:
    """The seconds of one worker, by phase."""

    rank: int
    host: str
    seconds: Mapping[str, float]

    @property
    def own(self) -> float:
        """Seconds in steps without waiting for other workers."""
        return sum(self.seconds.get(name, 0.0) for name in (Phase.DATA_WAIT, *COMPUTE))

    @property
    def steps(self) -> float:
        """Seconds in steps: all but validation, checkpoints and what comes before."""
        return self.own + self.seconds.get(Phase.COMMUNICATION_WAIT, 0.0)


@dataclass(frozen=True)
class Bottleneck:
    """What limits the speed of a training.

    Attributes:
        limited_by: The largest share of the time, as a statement without a period.
        advice: What would make it smaller; "" if it cost too little for advice.
        then: The next largest share, as a sentence; "" if it is small.
    """

    limited_by: str
    advice: str = ""
    then: str = ""

    def __str__(self) -> str:
        return _join(self.limited_by, self.advice) + (f" After it, {self.then}" if self.then else "")


@dataclass(frozen=True)
class _Share:
    """A fraction of the time: as the bottleneck, as the next largest cost, and what would make it smaller."""

    fraction: float
    bottleneck: str
    cost: str
    advice: str


def describe_bottleneck(workers: Sequence[PhaseSeconds], strategy: StrategyOptions) -> Bottleneck:
    """Return the largest share of the time and the next largest, and the options that would help.

    Each is a fraction of the time of the slowest worker's steps. A straggler: what the slowest worker has to do beyond
    the median of the others. Input: the median wait for data. Communication: the shortest wait for it (longer ones
    include waiting for stragglers). Compute: the rest.
    """
    total = max(worker.steps for worker in workers)
    if total == 0:
        return Bottleneck("No training step was executed")
    slowest = max(workers, key=lambda worker: worker.own)
    others = [worker for worker in workers if worker is not slowest] or [slowest]
    data = median(worker.seconds.get(Phase.DATA_WAIT, 0.0) for worker in workers) / total
    communication = min(worker.seconds.get(Phase.COMMUNICATION_WAIT, 0.0) for worker in workers) / total
    excess = (slowest.own - median(worker.own for worker in others)) / total
    slow = f"rank {slowest.rank} on {slowest.host}"
    phase = f"most of it in '{_find_slow_phase(slowest, others)}'"
    shares = [
        _Share(
            1 - data - communication - excess,
            "Compute-bound: {:.0%} of the time goes into forward, backward and optimizer",
            "computation costs {:.0%}",
            "more workers, precision='bfloat16' or compile=True would help",
        ),
        _Share(
            data,
            "Input-bound: workers wait for data {:.0%} of the time",
            "waiting for data costs {:.0%}",
            "move work from the recipe's transform to prepare, or set cache_gb, for a dataset on HDFS, or, on a GPU, "
            "gpu_cache_gb to the size of the whole split",
        ),
        _Share(
            communication,
            "Communication-bound: workers wait for communication {:.0%} of the time",
            "communication costs {:.0%}",
            strategy.LESS_COMMUNICATION,
        ),
        _Share(
            excess,
            f"Straggler: {slow} takes {{:.0%}} of the time longer than the others, {phase}",
            f"a straggler costs {{:.0%}} ({slow}, {phase})",
            f"check what else runs on {slowest.host}, or exclude that host",
        ),
    ]
    first, second, *_ = sorted(shares, key=lambda share: -share.fraction)
    limited_by = first.bottleneck.format(first.fraction)
    advice = first.advice if first.fraction * total >= MIN_ADVISED_SECONDS else ""
    if second.fraction < MIN_MENTIONED_SHARE:
        return Bottleneck(limited_by, advice)
    is_advised = second.fraction >= MIN_ADVISED_SHARE and second.fraction * total >= MIN_ADVISED_SECONDS
    then = _join(second.cost.format(second.fraction), second.advice if is_advised else "")
    return Bottleneck(limited_by, advice, then)


def _join(statement: str, advice: str) -> str:
    return f"{statement}; {advice}." if advice else f"{statement}."


def _find_slow_phase(slowest: PhaseSeconds, others: Sequence[PhaseSeconds]) -> str:
    """Return the phase in which the slowest worker loses most time against the others."""

    def excess(phase: str) -> float:
        return slowest.seconds.get(phase, 0.0) - median(worker.seconds.get(phase, 0.0) for worker in others)

    return max((Phase.DATA_WAIT, *COMPUTE), key=excess)
