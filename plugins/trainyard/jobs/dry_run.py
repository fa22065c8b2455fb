"""The plans of a DAG's tasks, made without running anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import jinja2
from airflow.sdk import DAG
from airflow.sdk.definitions.xcom_arg import PlainXComArg
from airflow.sdk.execution_time.context import VariableAccessor

from trainyard.errors import TrainyardError
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.planning import plan_operator
from trainyard.jobs.validation import is_pending, validated
from trainyard.planning.paths import run_directory
from trainyard.planning.plan import Plan
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.table import table

_RUN = "RUN_ID"


@dataclass(frozen=True)
class TaskPlan:
    """One task: its plan, or why there is none; and where in storage it `writes`, templates among it.

    Of a mapped task it is not known how often it runs, and with what: a `note` says so.
    """

    task_id: str
    plan: Plan | None
    problem: str = ""
    note: str = ""
    writes: tuple[str, ...] = ()


def plan_dag(dag: DAG, params: Mapping[str, Any] | None = None) -> list[TaskPlan]:
    """Each Trainyard task of `dag`, upstream first, for a run with `params`: by default the DAG's own."""
    known = dag.params.dump() if params is None else params
    return [plan_task(task, known) for task in dag.topological_sort() if _is_ours(task)]


def as_text(found: list[TaskPlan]) -> str:
    """A table of the stages, then each stage's spec and Spark configuration."""
    head = ["stage", "master", "queue", "label", "containers", "archive"]
    rows = [_row(item.plan) for item in found if item.plan]
    parts = [table(head, rows)] if rows else []
    parts += [_details(item.plan) if item.plan else f"{item.task_id}: {item.problem or item.note}" for item in found]
    return "\n\n".join(parts)


def as_json(found: list[TaskPlan]) -> str:
    """All of it, for programs."""
    return json.dumps([asdict(item) for item in found], indent=1, default=lambda part: part.model_dump(mode="json"))


def _is_ours(task: Any) -> bool:
    kind = getattr(task, "operator_class", type(task))
    return isinstance(kind, type) and issubclass(kind, JobOperator)


def plan_task(task: Any, params: Mapping[str, Any]) -> TaskPlan:
    """What `task` would submit in a run with `params`."""
    if not isinstance(task, JobOperator):
        return TaskPlan(task.task_id, None, note="mapped: how many there are, and of what, is known when it runs.")
    try:
        root = TrainyardHook(task.conn_id).get_conn().storage
        task_key = TaskKey(
            dag_id=task.dag_id,
            run_id=_RUN,
            task_id=task.task_id,
            directory=run_directory(root, task.dag_id, _RUN),
        )
        plan = _plan(task, task_key, root, params)
        products = [plan.spec[task.OUTPUT]] if task.OUTPUT else []
        return TaskPlan(task.task_id, plan, writes=(root, *products))
    except TrainyardError as error:
        return TaskPlan(task.task_id, None, str(error))
    except (OSError, RuntimeError) as error:
        problem = f"{task.title}: what the storage of connection {task.conn_id!r} holds cannot be read: {error}"
        return TaskPlan(task.task_id, None, problem)


def _plan(task: JobOperator, task_key: TaskKey, root: str, params: Mapping[str, Any]) -> Plan:
    filled: JobOperator = task.prepare_for_execution()
    context = {"params": params, "dag": task.dag, "run_id": _RUN, "var": _variables()}
    for name in task.template_fields:
        setattr(filled, name, _filled(task, getattr(task, name), context))
    fields = filled.resolve_fields(root)
    spec, _ = validated(task.SPEC, {"task_key": task_key} | fields)
    known = (
        spec.model_dump(mode="json")
        if spec and not is_pending(fields)
        else {"task_key": task_key.model_dump()} | fields
    )
    return plan_operator(filled, task_key, root, known)


def _variables() -> dict[str, VariableAccessor]:
    return {"value": VariableAccessor(deserialize_json=False), "json": VariableAccessor(deserialize_json=True)}


def _filled(task: JobOperator, value: Any, context: Mapping[str, Any]) -> Any:
    """`value` with its templates rendered where what they ask for is known before a run."""
    if isinstance(value, PlainXComArg):
        upstream = value.operator
        return {"uri": upstream.output_name} if isinstance(upstream, JobOperator) else str(value)
    if isinstance(value, Mapping):
        return {key: _filled(task, item, context) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(task, item, context) for item in value]
    if not is_pending(value):
        return value
    environment = task.get_template_env(task.dag).overlay(undefined=jinja2.StrictUndefined)
    try:
        return task.render_template(value, context, environment)
    except Exception:  # whatever a template may raise, it only means that its value is not known yet
        return value


def _row(plan: Plan) -> list[str]:
    on_yarn = plan.spark.master == "yarn"
    return [
        plan.task_key.task,
        plan.spark.master,
        plan.queue if on_yarn else "-",
        (plan.placement.node_label or "-") if on_yarn else "-",
        plan.containers,
        plan.py_files[0].rsplit("/", 1)[-1],
    ]


def _details(plan: Plan) -> str:
    lines = [f"{plan.task_key.task}: {plan.operator}"]
    spec = {name: value for name, value in plan.spec.items() if name != "task_key"}
    lines += [f"  {name} = {value if isinstance(value, str) else json.dumps(value)}" for name, value in spec.items()]
    lines += [f"  --conf {name}={value}" for name, value in sorted(plan.conf.items())]
    return "\n".join(lines)
