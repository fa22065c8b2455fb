"""The ledger: what runs held of a cluster, how much of it was busy, and what one application would have held instead.

Pure functions of holdings. With, for each application, A the resource-hours that it held (cores, memory, GPUs), T the
hours for which it held them and W those in which it worked:

    allocated = sum of A                  what YARN counted; on a local master slots x hours
    busy      = sum of A * W / T          W is at most T, so busy is at most allocated
    idle      = allocated - busy
    monolith  = peak * span               of one run: peak is the largest sum of A / T over the applications that run at
                                          one time, span the time from the first beginning to the last end

The monolith is the same run as one Spark application, which asks for all that any of its stages needs when it begins,
GPUs among it, and gives it back when it ends. It is never less than what the stages held: at no time do they hold more
than their peak, and outside the span nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from trainyard.holding import Holding

HOUR = 3600.0


@dataclass(frozen=True)
class Amount:
    """Resources, or resources x hours: cores, GiB of memory, GPUs."""

    cores: float = 0.0
    memory: float = 0.0
    gpus: float = 0.0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.cores + other.cores, self.memory + other.memory, self.gpus + other.gpus)

    def __sub__(self, other: Amount) -> Amount:
        return self + other.times(-1)

    def times(self, factor: float) -> Amount:
        return Amount(self.cores * factor, self.memory * factor, self.gpus * factor)

    def largest(self, other: Amount) -> Amount:
        """The larger of each."""
        return Amount(max(self.cores, other.cores), max(self.memory, other.memory), max(self.gpus, other.gpus))


@dataclass(frozen=True)
class Entry:
    """One application of a run: hours since the epoch at its beginning and end, resource-hours allocated and busy."""

    task: str
    queue: str
    began: float
    ended: float
    allocated: Amount
    busy: Amount

    @property
    def rate(self) -> Amount:
        """What it held at a time, on average."""
        return self.allocated.times(1 / (self.ended - self.began))


@dataclass(frozen=True)
class Account:
    """One run and its applications, of which there is at least one."""

    dag_id: str
    run_id: str
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Line:
    """A sum of the ledger; `monolith` is None where there is none: of a part of a run."""

    name: str
    allocated: Amount
    busy: Amount
    monolith: Amount | None

    @property
    def idle(self) -> Amount:
        return self.allocated - self.busy


def entry(holding: Holding) -> Entry:
    """A holding in hours and GiB."""
    allocated = Amount(holding.core_seconds, holding.memory_mb_seconds / 1024, holding.gpu_seconds).times(1 / HOUR)
    return Entry(
        task=holding.place.task, queue=holding.queue, began=holding.began / HOUR,
        ended=(holding.began + holding.seconds) / HOUR, allocated=allocated,
        busy=allocated.times(min(holding.working / holding.seconds, 1.0)),
    )  # fmt: skip


def monolith(entries: Sequence[Entry]) -> Amount:
    """What the applications of one run would have held as one: their peak, from the first beginning to the last end."""
    peak = Amount()
    for one in entries:
        beside = (other.rate for other in entries if other.began <= one.began < other.ended)
        peak = peak.largest(_sum(beside))
    return peak.times(max(one.ended for one in entries) - min(one.began for one in entries))


def week(account: Account) -> str:
    """The ISO week in which a run began, in UTC: `2026-W47`."""
    year, number, _ = datetime.fromtimestamp(min(one.began for one in account.entries) * HOUR, UTC).isocalendar()
    return f"{year}-W{number:02}"


def by(name: Callable[[Account], str], accounts: Iterable[Account]) -> list[Line]:
    """Sums of the runs that have the same name, the worst offender first."""
    groups: dict[str, list[Account]] = defaultdict(list)
    for account in accounts:
        groups[name(account)].append(account)
    return sorted((line(key, found) for key, found in groups.items()), key=offence, reverse=True)


def by_queue(accounts: Iterable[Account]) -> list[Line]:
    """Sums of the applications in each queue, the worst offender first."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for account in accounts:
        for one in account.entries:
            groups[one.queue].append(one)
    return sorted((_line(key, found, None) for key, found in groups.items()), key=offence, reverse=True)


def line(name: str, accounts: Sequence[Account]) -> Line:
    """The sum of some runs."""
    entries = [one for account in accounts for one in account.entries]
    return _line(name, entries, _sum(monolith(account.entries) for account in accounts))


def offence(line: Line) -> tuple[float, float]:
    """What the worst offender has most of: GPU-hours that were idle, then core-hours."""
    return line.idle.gpus, line.idle.cores


def _line(name: str, entries: Sequence[Entry], whole: Amount | None) -> Line:
    return Line(name, _sum(one.allocated for one in entries), _sum(one.busy for one in entries), whole)


def _sum(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, Amount())
