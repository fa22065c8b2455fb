"""End a Spark stage whose Python functions do not return, and say where it waits.

Spark waits for a Python worker without an end. Workers of trainings have heartbeats instead
(`trainyard.trainer.group.heartbeats`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from trainyard.errors import TrainyardError, summarize

HANG_MINUTES = "spark.trainyard.hangMinutes"
"""The setting for the minutes without progress after which a stage is ended."""
DEFAULT_MINUTES = 60.0
DUMP_SECONDS = "spark.python.worker.tracebackDumpIntervalSeconds"
"""Spark's setting for how often a Python worker writes its stack into the executor's log."""
INTERVAL_SECONDS = 10.0
_COUNTERS = (
    "numCompleteTasks", "numFailedTasks", "inputBytes", "inputRecords", "outputBytes", "outputRecords",
    "shuffleReadBytes", "shuffleReadRecords", "shuffleWriteBytes", "shuffleWriteRecords", "memoryBytesSpilled",
)  # fmt: skip
"""What shows the progress of a stage, as Spark's StageData names it. Tasks that run report some of it."""
_TASK = "Executor task launch worker"
_PYTHON = "org.apache.spark.api.python."
"""The name of a thread that runs a task, and where it is while it waits for its Python worker."""


@dataclass(frozen=True)
class Stage:
    """A stage that runs tasks.

    Attributes:
        id: Its number.
        name: Spark's name for it, with the line that started it.
        running: How many tasks run.
        tasks: How many it has.
        counters: Numbers that change as long as it makes progress.
    """

    id: int
    name: str
    running: int
    tasks: int
    counters: tuple[int, ...]


def get_minutes(conf: Any) -> float:
    """Return the minutes without progress after which a stage is ended.

    Args:
        conf: The configuration of a session, or settings by name.

    Raises:
        TrainyardError: The setting is no number above 0.
    """
    text = conf.get(HANG_MINUTES, str(DEFAULT_MINUTES))
    try:
        if (minutes := float(text)) > 0:
            return minutes
    except ValueError:
        pass
    raise TrainyardError(f"conf: {HANG_MINUTES}={text!r} is no number of minutes. Write '90', for example.")


class StallDetector:
    """Cancel a stage of the body that makes no progress because it waits for Python; a context manager.

    Args:
        context: The SparkContext.
        minutes: The time without progress of any stage.

    Attributes:
        stall: The error for the user, once a stage was canceled.
    """

    def __init__(self, context: Any, minutes: float) -> None:
        self._context, self._minutes = context, minutes
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall detector", daemon=True)
        self.stall: str | None = None

    def __enter__(self) -> StallDetector:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        stages: list[Stage] = []
        since, failed = time.monotonic(), False
        while not self._stopped.wait(min(INTERVAL_SECONDS, 6 * self._minutes)):
            try:
                before, stages = stages, list(self._list_stages())
                if stages != before or not stages:
                    since = time.monotonic()
                elif time.monotonic() - since >= 60 * self._minutes and self._waits_for_python():
                    self.stall = describe(stages, self._minutes)
                    for stage in stages:
                        self._context._jsc.sc().cancelStage(stage.id, self.stall)
                    return
            except Exception as error:  # py4j raises errors of several types, as for an executor that has just ended
                if not failed:
                    print(f"the progress of Spark's stages is not known now: {summarize(error)}", flush=True)
                failed = True

    def _list_stages(self) -> Iterator[Stage]:
        active = self._context._jsc.sc().statusStore().activeStages()
        for number in range(active.size()):
            stage = active.apply(number)
            if running := stage.numActiveTasks():  # otherwise it waits for executors
                counters = tuple(getattr(stage, name)() for name in _COUNTERS)
                yield Stage(stage.stageId(), stage.name(), running, stage.numTasks(), counters)

    def _waits_for_python(self) -> bool:
        """Return whether a task of any executor waits for its Python worker; others compute in Java."""
        context = self._context._jsc.sc()
        executors = context.statusStore().executorList(True)
        for number in range(executors.size()):
            threads = context.getExecutorThreadDump(executors.apply(number).id())
            for thread in threads.get() if threads.isDefined() else ():
                if thread.threadName().startswith(_TASK) and _PYTHON in str(thread.stackTrace()):
                    return True
        return False


def describe(stages: list[Stage], minutes: float) -> str:
    """Return the error for stages that make no progress."""
    names = " and ".join(
        f"stage {stage.id} ({stage.name!r}, {stage.running} of {stage.tasks} tasks running)" for stage in stages
    )
    return (
        f"no task of {names} has read or written a row for {minutes:g} minutes: a Python function, such as prepare, "
        "postprocess or a UDF in them, does not return. The logs of the executors have the stacks of Python workers "
        f"('most recent call first'). If it needs longer, write conf={{{HANG_MINUTES!r}: MINUTES}}."
    )
