"""An export whose first attempt is killed when it has its result, before Airflow stores it."""

import os
import signal
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from trainyard.operators import ExportOperator


def kill_once(context: Any, result: Any = None) -> None:
    """Kill the process of the Airflow worker in the first attempt."""
    if context["ti"].try_number == 1:
        os.kill(os.getpid(), signal.SIGKILL)


with DAG("untold", schedule=None, params={"source": ""}):
    ExportOperator(
        task_id="export",
        prepare="untold.prepare:rows",
        source="{{ params.source }}",
        format="json",
        dataset="untold/dataset",
        executors=1,
        force=True,
        post_execute=kill_once,
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
