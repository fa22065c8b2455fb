"""An export whose first try dies when it has its result, before Airflow knows."""

import os
import signal
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from trainyard.operators import ExportOperator


def die_once(context: Any, result: Any = None) -> None:
    """Kill -9 of the worker's process, in the first try."""
    if context["ti"].try_number == 1:
        os.kill(os.getpid(), signal.SIGKILL)


with DAG("untold", schedule=None, params={"source": ""}):
    ExportOperator(
        task_id="export",
        prepare="untold.prepare:rows",
        source="{{ params.source }}",
        format="json",
        dataset="untold/dataset",
        force=True,
        post_execute=die_once,
        retries=1,
        retry_delay=timedelta(seconds=1),
    )
