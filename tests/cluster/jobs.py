"""Run small jobs on the test cluster without Airflow's processes."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from trainyard.backends.yarn import YarnBackend
from trainyard.files import storage, uris
from trainyard.hooks.trainyard import Settings
from trainyard.jobs.operator import JobOperator
from trainyard.operators import ExportOperator
from trainyard.planning.plan import Plan
from trainyard.schemas.runs.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers.application import ApplicationTrigger

ROWS = "def rows(spark, source): return spark.range(500)"


@dataclass(frozen=True)
class Exports:
    """Build plans of exports from the source code of their `prepare`, and write their specs."""

    folder: Path
    root: str

    def plan(self, prepare: str = ROWS, settings: Settings | None = None, **options: Any) -> Plan:
        package = self.folder / "dags" / "toy"
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text("")
        (package / "prepare.py").write_text(textwrap.dedent(prepare))
        source = self.folder / "source.json"
        source.write_text('{"x": 1.5}\n')
        dag = DAG("toy", schedule=None)
        dag.fileloc = str(package / "dag.py")
        operator = ExportOperator(
            task_id="export", dag=dag, prepare="toy.prepare:rows", format="json", dataset="dataset",
            source=source.as_uri(), **{"executors": 1, **options},
        )  # fmt: skip
        return build_plan(operator, self.root, settings)


def build_plan(operator: JobOperator, root: str, settings: Settings | None = None) -> Plan:
    """Return the plan of a task in a run of its DAG, and write its spec below `root`."""
    run = uris.join(root, "runs", operator.dag_id, "r1")
    task_key = TaskKey(dag_id=operator.dag_id, run_id="r1", task_id=operator.task_id, directory=run)
    plan = operator.plan(task_key, settings or Settings(storage=root, shared=True))
    storage.replace(plan.attempt_uri, operator.SPEC.model_validate(plan.job.spec).to_json().encode())
    return plan


def get_event(trigger: ApplicationTrigger) -> dict[str, object]:
    """Return the payload of the trigger's event."""

    async def wait_for_event() -> dict[str, object]:
        async for event in trigger.run():
            return dict(event.payload)
        raise AssertionError("the trigger ended without an event")

    return asyncio.run(wait_for_event())


def build_backend(plan: Plan) -> YarnBackend:
    """Return the backend of an attempt that has this plan."""
    return YarnBackend(plan.job.operator, plan.job.task_key, plan.job.storage, lambda: plan)


def run_to_end(plan: Plan, log: Callable[[str], None] = print) -> RunRecord:
    """Run the application to its end and return its record. Raises what the backend raises."""
    backend = build_backend(plan)
    result: RunRecord | ApplicationTrigger = backend.run(log)
    while isinstance(result, ApplicationTrigger):
        result = backend.collect(get_event(result), log)
    return result


def wait_for(condition: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"the condition was not met within {seconds} s"
        time.sleep(0.2)
