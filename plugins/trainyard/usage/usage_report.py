"""The usage report: what runs allocated, how much of it was busy, and the single-application baseline.

Pure functions. With, for each application, A its allocated resource-hours (cores, memory, GPUs), T the hours of its
allocation, and W the hours in which it computed:

    allocated = sum of A              as YARN counts; slots x hours on a local master
    busy      = sum of A * W / T      W is at most T, so busy is at most allocated
    idle      = allocated - busy
    baseline  = peak * span           of one run: peak is the largest sum of A / T over the applications that run at one
                                      time, span is the time from the first start to the last end

The single-application baseline is the same run as one Spark application, which allocates all that any of its stages
needs, GPUs included, when it starts, and releases it when it ends. It is never less than `allocated`: the stages never
allocate more than their peak, and nothing outside of the span.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trainyard.usage.resource_usage import ResourceUsage

HOUR = 3600.0


@dataclass(frozen=True)
class ResourceHours:
    """Resources, or resources x hours: cores, GiB of memory, GPUs."""

    cores: float = 0.0
    memory: float = 0.0
    gpus: float = 0.0

    def __add__(self, other: ResourceHours) -> ResourceHours:
        return ResourceHours(self.cores + other.cores, self.memory + other.memory, self.gpus + other.gpus)

    def __sub__(self, other: ResourceHours) -> ResourceHours:
        return self + other.times(-1)

    def times(self, factor: float) -> ResourceHours:
        """Return every resource multiplied by `factor`."""
        return ResourceHours(self.cores * factor, self.memory * factor, self.gpus * factor)

    def maximum(self, other: ResourceHours) -> ResourceHours:
        """Return the maximum of each resource."""
        return ResourceHours(max(self.cores, other.cores), max(self.memory, other.memory), max(self.gpus, other.gpus))


@dataclass(frozen=True)
class ApplicationUsage:
    """One application of a run: `start` and `end` in hours since the epoch, resource-hours allocated and busy."""

    task: str
    queue: str
    start: float
    end: float
    allocated: ResourceHours
    busy: ResourceHours

    @property
    def rate(self) -> ResourceHours:
        """The resources that it had allocated at a time, on average."""
        return self.allocated.times(1 / (self.end - self.start))


@dataclass(frozen=True)
class RunUsage:
    """One run and its applications, at least one."""

    dag_id: str
    run_id: str
    applications: tuple[ApplicationUsage, ...]


@dataclass(frozen=True)
class UsageLine:
    """A sum in the report. `baseline` is the single-application baseline; None where the sum is of parts of runs."""

    name: str
    allocated: ResourceHours
    busy: ResourceHours
    baseline: ResourceHours | None

    @property
    def idle(self) -> ResourceHours:
        """What was allocated and not busy."""
        return self.allocated - self.busy


def convert_usage(usage: ResourceUsage) -> ApplicationUsage:
    """Convert a usage to hours and GiB."""
    allocated = ResourceHours(usage.core_seconds, usage.memory_mb_seconds / 1024, usage.gpu_seconds).times(1 / HOUR)
    return ApplicationUsage(
        task=usage.task_key.task, queue=usage.queue, start=usage.started_at / HOUR,
        end=(usage.started_at + usage.seconds) / HOUR, allocated=allocated,
        busy=allocated.times(min(usage.busy_seconds / usage.seconds, 1.0)),
    )  # fmt: skip


def compute_baseline(applications: Sequence[ApplicationUsage]) -> ResourceHours:
    """Return the single-application baseline of one run: its peak, from the first start to the last end."""
    peak = ResourceHours()
    for application in applications:
        concurrent = (other.rate for other in applications if other.start <= application.start < other.end)
        peak = peak.maximum(_sum(concurrent))
    return peak.times(max(a.end for a in applications) - min(a.start for a in applications))


def week_of(run: RunUsage) -> str:
    """Return the ISO week in which a run started, in UTC: `2026-W47`."""
    start = min(application.start for application in run.applications)
    year, number, _ = datetime.fromtimestamp(start * HOUR, UTC).isocalendar()
    return f"{year}-W{number:02}"


def group_runs(name: Callable[[RunUsage], str], runs: Iterable[RunUsage]) -> list[UsageLine]:
    """Return the sums of the runs with the same name, the most idle first."""
    groups: dict[str, list[RunUsage]] = defaultdict(list)
    for run in runs:
        groups[name(run)].append(run)
    return sorted((sum_runs(key, group) for key, group in groups.items()), key=idle_key, reverse=True)


def group_queues(runs: Iterable[RunUsage]) -> list[UsageLine]:
    """Return the sums of the applications in each queue, the most idle first."""
    groups: dict[str, list[ApplicationUsage]] = defaultdict(list)
    for run in runs:
        for application in run.applications:
            groups[application.queue].append(application)
    return sorted((_line(key, group, None) for key, group in groups.items()), key=idle_key, reverse=True)


def sum_runs(name: str, runs: Sequence[RunUsage]) -> UsageLine:
    """Return the sum of some runs."""
    applications = [application for run in runs for application in run.applications]
    return _line(name, applications, _sum(compute_baseline(run.applications) for run in runs))


def idle_key(line: UsageLine) -> tuple[float, float]:
    """Return the sort key of idle lines: idle GPU-hours, then idle core-hours."""
    return line.idle.gpus, line.idle.cores


def _line(name: str, applications: Sequence[ApplicationUsage], baseline: ResourceHours | None) -> UsageLine:
    return UsageLine(name, _sum(a.allocated for a in applications), _sum(a.busy for a in applications), baseline)


def _sum(amounts: Iterable[ResourceHours]) -> ResourceHours:
    return sum(amounts, ResourceHours())
