"""Run spark-submit through the Spark provider's hook, with its output filtered."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from trainyard.compat import AirflowException
from trainyard.errors import TrainyardError
from trainyard.planning.plan import Plan
from trainyard.spark_log import SparkLog
from trainyard.text import Log


class Submission(SparkSubmitHook):  # type: ignore[misc]
    """Run spark-submit for one plan, and pass the lines that `spark_log` keeps to `log`.

    `on_start` is called when the process has started.
    """

    def __init__(self, plan: Plan, spark_log: SparkLog, log: Log, on_start: Callable[[], None]) -> None:
        super().__init__(
            conf=dict(plan.conf),
            conn_id=plan.spark.conn_id,
            py_files=",".join(plan.py_files),
            jars=",".join(plan.job.jars) or None,
            packages=",".join(plan.job.packages) or None,
            files=",".join(plan.files) or None,
            name=plan.name,
            yarn_queue=plan.job.placement.queue,
            application_args=list(plan.arguments),
        )
        self._plan, self._spark_log, self._write, self._on_start = plan, spark_log, log, on_start

    def run(self) -> int:
        """Submit, wait for the end of spark-submit, and return its exit status, negative for a signal."""
        try:
            self.submit(self._plan.program, stdin=subprocess.DEVNULL, env=os.environ | dict(self._plan.env))
        except AirflowException:
            if self._submit_sp is None:
                raise
        except FileNotFoundError as error:
            raise TrainyardError(f"{error.filename} was not found; install pyspark where Airflow runs.") from error
        return int(self._submit_sp.returncode)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        self._on_start()
        for line in itr:
            text = str(line).rstrip("\n")
            if self._spark_log.keep(text):
                self._write(text)
