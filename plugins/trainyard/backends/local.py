"""Applications on this machine: spark-submit through the Spark provider's hook, watched to its end."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from trainyard.backends import processes
from trainyard.backends.base import Say
from trainyard.backends.spark_log import SparkLog
from trainyard.contract.errors import TrainyardError
from trainyard.contract.record import RunRecord, find
from trainyard.plan import Plan


class LocalBackend:
    """Runs one application as a child of this process. The run record says how it went."""

    def __init__(self) -> None:
        self._tag: str | None = None
        self._killed = False

    def run(self, plan: Plan, say: Say) -> RunRecord:
        self._tag = plan.tag
        if leftovers := processes.end(plan.tag):
            say(f"Ended {leftovers} processes that an earlier try of this task had left.")
        log, submitted_at = SparkLog(), time.time()
        try:
            with _exit_on_sigterm():
                status = _Submission(plan, log, say).run(plan.program)
        finally:
            processes.end(plan.tag)
        record = None if self._killed else find(plan.place)
        if record is None or record.started_at < submitted_at:
            raise TrainyardError(_no_record(plan, status, log.last, self._killed))
        return record

    def kill(self) -> None:
        if self._tag:
            self._killed = True
            processes.end(self._tag)


class _Submission(SparkSubmitHook):  # type: ignore[misc]
    """The provider's hook, with its output sifted and its exit status returned."""

    def __init__(self, plan: Plan, sift: SparkLog, say: Say) -> None:
        super().__init__(
            conf=dict(plan.conf),
            conn_id=plan.spark.conn_id,
            py_files=",".join(plan.py_files),
            name=plan.name,
            application_args=list(plan.arguments),
            env_vars=dict(plan.env),
        )
        self._sift, self._say = sift, say

    def run(self, program: str) -> int:
        try:
            self.submit(program, stdin=subprocess.DEVNULL)
        except AirflowException:
            if self._submit_sp is None:
                raise
        except FileNotFoundError as error:
            raise TrainyardError(f"{error.filename} is not to be found; install pyspark where Airflow runs.") from error
        return int(self._submit_sp.returncode)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        for line in itr:
            text = str(line).rstrip("\n")
            if self._sift.keep(text):
                self._say(text)


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Where nothing else handles SIGTERM (`airflow dags test`), let it unwind this process's stack."""
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
        return f"{plan.operator} was killed; its application and all of its processes were ended."
    how = f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"
    said = "\n".join(["Its last words:", *last]) if last else "It said nothing."
    return (
        f"{plan.operator}: the application {how} before its driver wrote a record of the run. {said}\n"
        "If it was killed for memory, give it more or make rows_per_batch smaller."
    )
