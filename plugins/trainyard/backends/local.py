"""Run applications whose driver is a child of this process: on a local master, and on Spark standalone."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from trainyard.backends import processes
from trainyard.backends.class_sharing import ClassSharing, cache_folder
from trainyard.backends.submission import Submission
from trainyard.errors import TrainyardError
from trainyard.planning.plan import Plan
from trainyard.progress_bar import ProgressBar
from trainyard.schemas.runs import worker_progress
from trainyard.schemas.runs.run_record import RunRecord, find_record
from trainyard.schemas.runs.worker_progress import ScriptProgress, TrainingProgress
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.spark_log import SparkLog
from trainyard.text import Log
from trainyard.usage import resource_usage

PROGRESS_SECONDS = 1.0


class LocalBackend:
    """Run one application as a child of this process. Its run record, not its exit status, is the outcome."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._killed = False

    def run(self, log: Log) -> RunRecord:
        """Run the application, and return the record that its driver wrote.

        Raises:
            TrainyardError: The application ended without a record.
        """
        plan = self._plan
        if leftovers := processes.end(plan.tag):
            log(f"Ended {leftovers} processes that an earlier attempt of this task had left.")
        sharing = ClassSharing(os.environ | dict(plan.env), cache_folder())
        submitted = replace(plan, env={**plan.env, **sharing.prepare()})
        spark_log, submitted_at = SparkLog(), time.time()
        read_progress, status = partial(_read_progress, plan.job.task_key, submitted_at), 1
        try:
            with _exit_on_sigterm(), ProgressBar(read_progress, PROGRESS_SECONDS) as bar:
                status = Submission(submitted, spark_log, bar.above(log), self._end_if_killed).run()
        finally:
            processes.end(plan.tag)
            sharing.finish(succeeded=status == 0)
        record = None if self._killed else find_record(plan.job.task_key)
        if record and record.started_at < submitted_at:
            record = None
        resource_usage.save(resource_usage.of_local(plan, record, submitted_at), log)
        if record is None:
            raise TrainyardError(_no_record(plan, status, spark_log.last, self._killed))
        return record

    def kill(self) -> None:
        """End the application and all of its processes; do nothing where there are none."""
        self._killed = True
        processes.end(self._plan.tag)

    def kill_all(self) -> None:
        """End the processes of the task."""
        processes.end(self._plan.tag)

    def _end_if_killed(self) -> None:
        """End spark-submit if `kill` was called while it started, and could not find it yet."""
        if self._killed:
            processes.end(self._plan.tag)


def _read_progress(task_key: TaskKey, since: float) -> TrainingProgress | ScriptProgress | None:
    """Return the progress of the training, None while there is none that was written after `since`."""
    progress = worker_progress.read_latest(task_key)
    return progress.training if progress and progress.at >= since else None


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind this process's stack where nothing else handles it (`airflow dags test`)."""
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _no_record(plan: Plan, status: int, last: tuple[str, ...], killed: bool) -> str:
    if killed:
        return f"{plan.job.operator} was killed; its application and all of its processes were ended."
    end = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
    output = "\n".join(["Last output:", *last]) if last else "No output was captured."
    return (
        f"{plan.job.operator}: the application {end} before its driver wrote a run record. {output}\n"
        "If it was killed for memory, increase memory= or decrease rows_per_batch=."
    )
