"""The ledger: what runs held of a cluster, how much of it was busy, and what one application would have held instead.

Pure functions of usages. With, for each application, A the resource-hours that it held (cores, memory, GPUs), T the
hours for which it held them and W those in which it worked:

    allocated = sum of A                  what YARN counted; on a local master slots x hours
    busy      = sum of A * W / T          W is at most T, so busy is at most allocated
    idle      = allocated - busy
    single_application  = peak * span               of one run: peak is the largest sum of A / T over the applications that run at
                                          one time, span the time from the first beginning to the last end

The single_application is the same run as one Spark application, which asks for all that any of its stages needs when it begins,
GPUs among it, and gives it back when it ends. It is never less than what the stages held: at no time do they hold more
than their peak, and outside the span nothing.
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
        return ResourceHours(self.cores * factor, self.memory * factor, self.gpus * factor)

    def largest(self, other: ResourceHours) -> ResourceHours:
        """The larger of each."""
        return ResourceHours(max(self.cores, other.cores), max(self.memory, other.memory), max(self.gpus, other.gpus))


@dataclass(frozen=True)
class ApplicationUsage:
    """One application of a run: hours since the epoch at its beginning and end, resource-hours allocated and busy."""

    task: str
    queue: str
    began: float
    ended: float
    allocated: ResourceHours
    busy: ResourceHours

    @property
    def rate(self) -> ResourceHours:
        """What it held at a time, on average."""
        return self.allocated.times(1 / (self.ended - self.began))


@dataclass(frozen=True)
class RunUsage:
    """One run and its applications, of which there is at least one."""

    dag_id: str
    run_id: str
    entries: tuple[ApplicationUsage, ...]


@dataclass(frozen=True)
class UsageLine:
    """A sum of the ledger; `single_application` is None where there is none: of a part of a run."""

    name: str
    allocated: ResourceHours
    busy: ResourceHours
    single_application: ResourceHours | None

    @property
    def idle(self) -> ResourceHours:
        return self.allocated - self.busy


def application_usage(usage: ResourceUsage) -> ApplicationUsage:
    """A usage in hours and GiB."""
    allocated = ResourceHours(usage.core_seconds, usage.memory_mb_seconds / 1024, usage.gpu_seconds).times(1 / HOUR)
    return ApplicationUsage(
        task=usage.task_key.task, queue=usage.queue, began=usage.began / HOUR,
        ended=(usage.began + usage.seconds) / HOUR, allocated=allocated,
        busy=allocated.times(min(usage.working / usage.seconds, 1.0)),
    )  # fmt: skip


def single_application(entries: Sequence[ApplicationUsage]) -> ResourceHours:
    """What the applications of one run would have held as one: their peak, from the first beginning to the last end."""
    peak = ResourceHours()
    for one in entries:
        beside = (other.rate for other in entries if other.began <= one.began < other.ended)
        peak = peak.largest(_sum(beside))
    return peak.times(max(one.ended for one in entries) - min(one.began for one in entries))


def week(account: RunUsage) -> str:
    """The ISO week in which a run began, in UTC: `2026-W47`."""
    year, number, _ = datetime.fromtimestamp(min(one.began for one in account.entries) * HOUR, UTC).isocalendar()
    return f"{year}-W{number:02}"


def group_runs(name: Callable[[RunUsage], str], accounts: Iterable[RunUsage]) -> list[UsageLine]:
    """Sums of the runs that have the same name, the worst offender first."""
    groups: dict[str, list[RunUsage]] = defaultdict(list)
    for account in accounts:
        groups[name(account)].append(account)
    return sorted((sum_runs(key, found) for key, found in groups.items()), key=idle_key, reverse=True)


def group_queues(accounts: Iterable[RunUsage]) -> list[UsageLine]:
    """Sums of the applications in each queue, the worst offender first."""
    groups: dict[str, list[ApplicationUsage]] = defaultdict(list)
    for account in accounts:
        for one in account.entries:
            groups[one.queue].append(one)
    return sorted((_line(key, found, None) for key, found in groups.items()), key=idle_key, reverse=True)


def sum_runs(name: str, accounts: Sequence[RunUsage]) -> UsageLine:
    """The sum of some runs."""
    entries = [one for account in accounts for one in account.entries]
    return _line(name, entries, _sum(single_application(account.entries) for account in accounts))


def idle_key(line: UsageLine) -> tuple[float, float]:
    """What the worst offender has most of: GPU-hours that were idle, then core-hours."""
    return line.idle.gpus, line.idle.cores


def _line(name: str, entries: Sequence[ApplicationUsage], whole: ResourceHours | None) -> UsageLine:
    return UsageLine(name, _sum(one.allocated for one in entries), _sum(one.busy for one in entries), whole)


def _sum(amounts: Iterable[ResourceHours]) -> ResourceHours:
    return sum(amounts, ResourceHours())
