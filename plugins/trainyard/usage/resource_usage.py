"""What an application held, and for how long it worked: kept beside its record when it has ended.

DIRECTORY/held/TASK.APPLICATION.json    one for each application, so that tries that failed count too
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from pydantic import NonNegativeFloat, PositiveFloat

from trainyard import storage
from trainyard.log import Log
from trainyard.planning.plan import Plan
from trainyard.planning.spark_conf import local_slots
from trainyard.schemas.document import Document
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.yarn.resource_manager import Application

STARTING = frozenset({"start Spark", "import", "import prepare", "wait for slots"})
"""What a driver does before its job begins."""
WAITING = frozenset({"data wait", "wait for communication", "wait for workers", "find checkpoint", "set up"})
"""Phases of a rank in which it does not compute."""
LEAST_SECONDS = 0.001


class ResourceUsage(Document):
    """What one application of the task at `place` held from `began` (seconds since the epoch) for `seconds`.

    `core_seconds` are vcores x seconds as YARN counts them, on a local master slots x seconds; `memory_mb_seconds` are
    0 where nobody counts. The application worked for `working` of its seconds. `page` is the ResourceManager's.
    """

    KIND: ClassVar[str] = "resource usage"

    task_key: TaskKey
    application: str
    queue: str
    began: float
    seconds: PositiveFloat
    working: NonNegativeFloat
    core_seconds: NonNegativeFloat
    memory_mb_seconds: NonNegativeFloat = 0.0
    gpu_seconds: NonNegativeFloat = 0.0
    page: str = ""

    @property
    def uri(self) -> str:
        """Where it lies."""
        return storage.join(self.task_key.directory, "usage", f"{self.task_key.task}.{self.application}.json")


def of_local(plan: Plan, found: RunRecord | None, began: float) -> ResourceUsage:
    """Of an application on a local master that has ended just now: all slots of the master."""
    seconds = max(time.time() - began, LEAST_SECONDS)
    return ResourceUsage(
        task_key=plan.task_key, application=found.application if found else f"try-{plan.task_key.try_number}",
        queue=plan.spark.master, began=began, seconds=seconds, working=min(_worked(plan.task_key, found), seconds),
        core_seconds=(local_slots(plan.spark.master) or 1) * seconds,
    )  # fmt: skip


def of_yarn(plan: Plan, found: RunRecord | None, ended: Application, page: str) -> ResourceUsage:
    """Of an application on YARN that has ended: what the ResourceManager counted."""
    began = ended.launched or ended.started
    seconds = max(ended.finished - began, LEAST_SECONDS)
    counted = ended.resource_seconds
    return ResourceUsage(
        task_key=plan.task_key, application=ended.id, queue=ended.queue, began=began, seconds=seconds,
        working=min(_worked(plan.task_key, found), seconds), core_seconds=counted.get("vcores", 0.0),
        memory_mb_seconds=counted.get("memory-mb", 0.0), gpu_seconds=counted.get("yarn.io/gpu", 0.0), page=page,
    )  # fmt: skip


def save(usage: ResourceUsage, log: Log) -> None:
    """Write it; one that is kept already stays. That this cannot be done is told, and is no failure."""
    try:
        if not storage.exists(usage.uri):
            storage.replace(usage.uri, usage.to_json().encode())
    except (OSError, RuntimeError) as error:
        log(f"What {usage.application} held could not be kept: {error}")


def read_run(directory: str) -> list[ResourceUsage]:
    """Those of all applications of a run that have ended, by their beginning."""
    root = storage.join(directory, "usage")
    found = [
        ResourceUsage.load(storage.join(root, name)) for name in storage.list_names(root) if not name.startswith(".")
    ]
    return sorted(found, key=lambda usage: usage.began)


def working(found: RunRecord, events: Iterable[Mapping[str, Any]]) -> float:
    """Seconds in which an application did what it was for, by its record and the events of its driver.

    Of a training the mean over ranks of the phases in which they compute; of others the time in which a span of the
    driver goes on that is not about starting.
    """
    if isinstance(told := found.output.get("seconds"), Mapping):
        return float(sum(seconds for name, seconds in told.items() if name not in WAITING))
    spans = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X" and e["name"] not in STARTING)
    total, until = 0.0, 0.0
    for begin, end in spans:
        total += max(0.0, end - max(begin, until))
        until = max(until, end)
    return total / 1e6


def _worked(task_key: TaskKey, found: RunRecord | None) -> float:
    """Nothing, where there is no record, or no events that can be read."""
    uri = storage.join(task_key.directory, "events", task_key.task, "driver.jsonl")
    with suppress(OSError, RuntimeError, ValueError):
        if found:
            return working(found, [json.loads(line) for line in storage.read(uri).splitlines()])
    return 0.0
