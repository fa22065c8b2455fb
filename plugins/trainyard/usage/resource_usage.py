"""The resource usage of an application that has ended, stored in its run's directory.

DIRECTORY/usage/TASK.APPLICATION.json    one per application, so that failed attempts count too
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import NonNegativeFloat, PositiveFloat

from trainyard.errors import TrainyardError
from trainyard.files import storage, uris
from trainyard.planning.plan import Plan
from trainyard.schemas.document import Document
from trainyard.schemas.results import ModelResult
from trainyard.schemas.runs import events
from trainyard.schemas.runs.phases import computes
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.text import Log

if TYPE_CHECKING:
    from trainyard.yarn.resource_manager import Application

MIN_SECONDS = 0.001


class ResourceUsage(Document):
    """What one application allocated from `started_at` (seconds since the epoch) for `seconds`.

    `core_seconds` are vcores x seconds as YARN counts them, slots x seconds on a local master, and the requested cores
    x seconds on Spark standalone. `memory_mb_seconds` are 0 where YARN does not count them. The application computed
    for `busy_seconds`. `page` is its page at the ResourceManager. `error` is why its job failed: the run record is
    replaced by that of the next attempt.
    """

    KIND: ClassVar[str] = "resource usage"

    task_key: TaskKey
    application: str
    queue: str
    started_at: float
    seconds: PositiveFloat
    busy_seconds: NonNegativeFloat
    core_seconds: NonNegativeFloat
    memory_mb_seconds: NonNegativeFloat = 0.0
    gpu_seconds: NonNegativeFloat = 0.0
    page: str = ""
    error: str = ""

    @property
    def uri(self) -> str:
        """The file that it is stored in."""
        return _uri(self.task_key, self.application)


def of_local(plan: Plan, record: RunRecord | None, started_at: float) -> ResourceUsage:
    """Return the usage of an application whose driver ran here and has just ended: all slots, or requested cores."""
    requested = (plan.executors.count or 1) * (plan.executors.cores or 1)
    seconds = max(time.time() - started_at, MIN_SECONDS)
    return ResourceUsage(
        task_key=plan.job.task_key, application=record.application if record else f"try-{plan.job.task_key.try_number}",
        queue=plan.spark.master, started_at=started_at, seconds=seconds,
        busy_seconds=min(_read_busy_seconds(plan.job.task_key, record), seconds),
        core_seconds=(plan.slots or requested) * seconds,
    )  # fmt: skip


def of_yarn(task_key: TaskKey, record: RunRecord | None, ended: Application, page: str) -> ResourceUsage:
    """Return the usage of an application on YARN that has ended, as the ResourceManager counted it."""
    started_at = ended.launched or ended.started
    seconds = max(ended.finished - started_at, MIN_SECONDS)
    allocated = ended.resource_seconds
    return ResourceUsage(
        task_key=task_key, application=ended.id, queue=ended.queue, started_at=started_at, seconds=seconds,
        busy_seconds=min(_read_busy_seconds(task_key, record), seconds), core_seconds=allocated.get("vcores", 0.0),
        memory_mb_seconds=allocated.get("memory-mb", 0.0), gpu_seconds=allocated.get("yarn.io/gpu", 0.0), page=page,
        error=(record.error or "") if record else "",
    )  # fmt: skip


def save(usage: ResourceUsage, log: Log) -> None:
    """Write the usage unless it is stored already. Errors are logged, not raised."""
    try:
        if not storage.exists(usage.uri):
            storage.replace(usage.uri, usage.to_json().encode())
    except (OSError, RuntimeError) as error:
        log(f"The resource usage of {usage.application} could not be written: {error}")


def read_error(task_key: TaskKey, application: str) -> str:
    """Return why the job of an earlier application of a task failed, "" if that is not known."""
    with suppress(OSError, RuntimeError, TrainyardError):
        return ResourceUsage.load(_uri(task_key, application)).error
    return ""


def read_run(directory: str) -> list[ResourceUsage]:
    """Return the usage of every application of a run that has ended, in the order of their start."""
    usages = ResourceUsage.load_all(uris.join(directory, "usage"))
    return sorted(usages, key=lambda usage: usage.started_at)


def busy_seconds(record: RunRecord, driver: Iterable[Mapping[str, Any]]) -> float:
    """Return the seconds in which an application computed, by its record and the events of its driver.

    For a training this is the mean over workers of the phases in which they compute; for other jobs, the time covered
    by the driver's spans, less those that belong to the start.
    """
    if isinstance(record.result, ModelResult):
        return sum(seconds for name, seconds in record.result.seconds.items() if computes(name))
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in driver if e["ph"] == "X" and computes(e["name"]))
    total, until = 0.0, 0.0
    for begin, end in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total / 1e6


def _read_busy_seconds(task_key: TaskKey, record: RunRecord | None) -> float:
    """Return the busy seconds; 0 without a record, or without readable events."""
    with suppress(OSError, RuntimeError, ValueError):
        if record:
            return busy_seconds(record, events.read_process(task_key.directory, task_key.task, "driver"))
    return 0.0


def _uri(task_key: TaskKey, application: str) -> str:
    return uris.join(task_key.directory, "usage", f"{task_key.task}.{application}.json")
