"""Describe the bottleneck of a training in one sentence, from the seconds of each worker in each phase."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from trainyard.schemas.specs.strategies import StrategyOptions
from trainyard.trainer.loop.phases import COMMUNICATION_WAIT

DATA_WAIT = "data wait"
COMPUTE = ("copy", "forward", "backward", "optimizer")
THRESHOLD = 0.1
"""A smaller fraction of the time is not a bottleneck."""

LESS_COMMUNICATION = {
    "allreduce": (
        "strategy={'name': 'allreduce', 'compression': 'fp16'} halves the bytes, strategy='averaging' communicates "
        "once in five steps, and a larger batch_size takes fewer steps"
    ),
    "horovod": (
        "strategy='allreduce' overlaps communication with the backward pass, and a larger batch_size takes fewer steps"
    ),
    "averaging": "a higher frequency averages less often, and a larger batch_size takes fewer steps",
    "threshold": "a lower density sends less, and a larger batch_size takes fewer steps",
    "diloco": "more inner_steps communicate less often",
}


@dataclass(frozen=True)
class PhaseSeconds:
    """The seconds of one worker, by phase."""

    rank: int
    host: str
    seconds: Mapping[str, float]

    @property
    def own(self) -> float:
        """Seconds in steps without waiting for other workers."""
        return sum(self.seconds.get(name, 0.0) for name in (DATA_WAIT, *COMPUTE))

    @property
    def steps(self) -> float:
        """Seconds in steps: all but validation, checkpoints and what comes before."""
        return self.own + self.seconds.get(COMMUNICATION_WAIT, 0.0)


def describe_bottleneck(workers: Sequence[PhaseSeconds], strategy: StrategyOptions) -> str:
    """Return the bottleneck, and the option that would help.

    Each cause is a fraction of the time of the slowest worker's steps. A straggler: what the slowest worker has to do
    beyond the median of the others. Input: the median wait for data. Communication: the shortest wait for it (longer
    ones include waiting for stragglers). Compute: the rest.
    """
    total = max(worker.steps for worker in workers)
    if total == 0:
        return "No training step was executed."
    slowest = max(workers, key=lambda worker: worker.own)
    others = [worker for worker in workers if worker is not slowest] or [slowest]
    data = median(worker.seconds.get(DATA_WAIT, 0.0) for worker in workers) / total
    communication = min(worker.seconds.get(COMMUNICATION_WAIT, 0.0) for worker in workers) / total
    excess = (slowest.own - median(worker.own for worker in others)) / total
    largest = max(data, communication, excess)
    if largest < THRESHOLD:
        return (
            f"Compute-bound: {1 - data - communication - excess:.0%} of the time goes into forward, backward and "
            "optimizer. More workers, precision='bfloat16' or compile=True would help."
        )
    if largest == excess:
        return (
            f"Straggler: rank {slowest.rank} on {slowest.host} takes {excess:.0%} longer than the others, most of it "
            f"in {_find_slow_phase(slowest, others)!r}. Check what else runs on {slowest.host}, or exclude that host."
        )
    if largest == data:
        return (
            f"Input-bound: workers wait for data {data:.0%} of the time. Move work from the recipe's transform to "
            "prepare, or, for a dataset on HDFS, set cache_gb to the size of the whole split."
        )
    return f"Communication-bound: {communication:.0%} of the time; {LESS_COMMUNICATION[strategy.name]}."


def _find_slow_phase(slowest: PhaseSeconds, others: Sequence[PhaseSeconds]) -> str:
    """Return the phase in which the slowest worker loses most time against the others."""

    def excess(phase: str) -> float:
        return slowest.seconds.get(phase, 0.0) - median(worker.seconds.get(phase, 0.0) for worker in others)

    return max((DATA_WAIT, *COMPUTE), key=excess)
