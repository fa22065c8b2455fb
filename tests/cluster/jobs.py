"""Small jobs on the test cluster, run without Airflow's processes."""

from __future__ import annotations

import asyncio
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from trainyard import storage
from trainyard.backends.yarn import YarnBackend
from trainyard.hooks.trainyard import Settings
from trainyard.jobs.operator import JobOperator
from trainyard.operators import ExportOperator
from trainyard.planning.plan import Plan
from trainyard.schemas.run_record import RunRecord
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.triggers.application import ApplicationTrigger

ROWS = "def rows(spark, source): return spark.range(500)"


@dataclass(frozen=True)
class Exports:
    """Plans exports whose `prepare` is the source code given, and writes their specs."""

    folder: Path
    root: str

    def plan(self, prepare: str = ROWS, **options: Any) -> Plan:
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
            source=source.as_uri(), **options,
        )  # fmt: skip
        return planned(operator, self.root)


def planned(operator: JobOperator, root: str) -> Plan:
    """The plan of a task in a run of its DAG, with its spec written below `root`."""
    run = storage.join(root, "runs", operator.dag_id, "r1")
    task_key = TaskKey(dag_id=operator.dag_id, run_id="r1", task_id=operator.task_id, directory=run)
    made = operator.plan(task_key, Settings(storage=root))
    storage.replace(made.spec_uri, operator.SPEC.model_validate(made.spec).to_json().encode())
    return made


def event(trigger: ApplicationTrigger) -> dict[str, object]:
    """What the trigger says when it fires."""

    async def first() -> dict[str, object]:
        async for fired in trigger.run():
            return dict(fired.payload)
        raise AssertionError("the trigger ended without an event")

    return asyncio.run(first())


def finished(plan: Plan, say: Callable[[str], None] = print) -> RunRecord:
    """The record of the application, waited for. Raises what the backend raises."""
    backend = YarnBackend(plan)
    found: RunRecord | ApplicationTrigger = backend.run(say)
    while isinstance(found, ApplicationTrigger):
        found = backend.collect(event(found), say)
    return found


def wait_for(condition: Callable[[], object], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.2)
