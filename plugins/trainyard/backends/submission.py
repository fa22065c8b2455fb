"""spark-submit through the Spark provider's hook, its output sifted and its exit status returned."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from trainyard.backends.spark_log import SparkLog
from trainyard.errors import TrainyardError
from trainyard.log import Log
from trainyard.planning.plan import Plan


class Submission(SparkSubmitHook):  # type: ignore[misc]
    """One spark-submit for one plan. What is worth it of its output goes to `log`, and is kept in `sift`."""

    def __init__(self, plan: Plan, sift: SparkLog, log: Log) -> None:
        super().__init__(
            conf=dict(plan.conf),
            conn_id=plan.spark.conn_id,
            py_files=",".join(plan.py_files),
            files=",".join(plan.files) or None,
            name=plan.name,
            yarn_queue=plan.placement.queue,
            application_args=list(plan.arguments),
        )
        self._plan, self._sift, self._say = plan, sift, log

    def run(self) -> int:
        """Submit, and wait for the end of spark-submit; its exit status, negative for a signal."""
        try:
            self.submit(self._plan.program, stdin=subprocess.DEVNULL, env=os.environ | dict(self._plan.env))
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
