"""Dry run: build the plans of a DAG's tasks without running anything."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jinja2
from airflow.sdk import DAG
from airflow.sdk.bases.xcom import BaseXCom
from airflow.sdk.definitions.xcom_arg import PlainXComArg, ResolveMixin
from airflow.sdk.execution_time.context import VariableAccessor

from trainyard.clusters.registry import find_cluster
from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import uris
from trainyard.hooks.trainyard import Settings
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options.base import HasOptions
from trainyard.jobs.options.locations import find_all
from trainyard.jobs.options.validation import UNRENDERED, is_pending, pending_options, validated
from trainyard.planning.paths import run_directory
from trainyard.planning.placement import Placement
from trainyard.planning.plan import Plan
from trainyard.planning.sizing import Memory
from trainyard.schemas.specs.fields import Kind
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.text import table

_RUN = "RUN_ID"
_CONNECTIONS = ("conn_id", "spark_conn_id")
_SIZES = ("workers", "memory", "driver_memory", "grow_memory_to")


@dataclass(frozen=True)
class TaskPlan:
    """The plan of one task.

    Attributes:
        task_id: The task.
        plan: The plan, or None.
        problem: Why there is no plan, or what is missing in it.
        is_temporary: Whether the problem may pass: a storage, a server or a ticket is not available now.
        note: Why the plan is not known before the task runs.
        writes: The URIs that the task writes to, not the name of a table; they may have templates in them.
    """

    task_id: str
    plan: Plan | None
    problem: str = ""
    is_temporary: bool = False
    note: str = ""
    writes: tuple[str, ...] = ()


def plan_dag(dag: DAG, params: Mapping[str, Any] | None = None) -> list[TaskPlan]:
    """Plan each Trainyard task of a DAG, upstream first, for a run with `params` (default: the DAG's own)."""
    known = dag.params.dump() if params is None else params
    return [plan_task(task, known) for task in dag.topological_sort() if is_job(task)]


def as_text(plans: list[TaskPlan]) -> str:
    """Return a table of the stages, then each stage's spec and Spark configuration."""
    head = ["stage", "master", "queue", "label", "containers", "archive"]
    rows = [_row(item.plan) for item in plans if item.plan]
    parts = [table(head, rows)] if rows else []
    for item in plans:
        parts += [_details(item.plan)] if item.plan else []
        parts += [f"{item.task_id}: {why}"] if (why := item.problem or item.note) else []
    return "\n\n".join(parts)


def is_job(task: Any) -> bool:
    """Return whether a task, mapped or not, submits an application."""
    kind = getattr(task, "operator_class", type(task))
    return isinstance(kind, type) and issubclass(kind, JobOperator)


def plan_task(task: Any, params: Mapping[str, Any]) -> TaskPlan:
    """Plan what a task would submit in a run with `params`."""
    if not isinstance(task, JobOperator) or task.get_closest_mapped_task_group() is not None:
        return TaskPlan(task.task_id, None, note="mapped: its plans are known when it runs.")
    rendered: JobOperator = task.prepare_for_execution()
    context = {"params": params, "dag": task.dag, "run_id": _RUN, "var": _variables()}
    try:
        _render_options(rendered, _CONNECTIONS, context, root="")
        if unknown := [name for name in _CONNECTIONS if is_pending(getattr(rendered, name))]:
            return _plan_later(task, unknown)
        settings = rendered.read_settings()
        root = settings.storage
        task_key = TaskKey(
            dag_id=task.dag_id,
            run_id=_RUN,
            task_id=task.task_id,
            directory=run_directory(root, task.dag_id, _RUN),
        )
        _render_options(rendered, task.template_fields, context, root)
        if unknown := _unknown_requests(rendered):
            return _plan_later(task, unknown)
        plan, problem = _plan(rendered, task_key, settings)
        outputs = [plan.job.spec[task.OUTPUT]] if task.OUTPUT else []
        writes = (root, *filter(uris.is_absolute, outputs))
        return TaskPlan(task.task_id, plan, problem, is_temporary=bool(problem), writes=writes)
    except TrainyardError as error:
        return TaskPlan(task.task_id, None, str(error), isinstance(error, UnavailableError))
    except (OSError, RuntimeError) as error:
        return TaskPlan(task.task_id, None, _describe_unreadable(rendered, error), is_temporary=True)


def _plan_later(task: JobOperator, unknown: Sequence[str]) -> TaskPlan:
    return TaskPlan(task.task_id, None, note=f"its plan is known when {', '.join(unknown)} can be rendered.")


def _render_options(task: JobOperator, names: Sequence[str], context: Mapping[str, Any], root: str) -> None:
    """Render the templates of options in place, as far as they can be before a run."""
    for name in names:
        setattr(task, name, _render(task, getattr(task, name), context, root))


def _unknown_requests(rendered: JobOperator) -> list[str]:
    """Return the options with templates without which there is no plan."""
    sizes = [name for name in _SIZES if is_pending(getattr(rendered, name, None))]
    return sorted({*pending_options(rendered, rendered.OPTIONS), *sizes})


def _plan(rendered: JobOperator, task_key: TaskKey, settings: Settings) -> tuple[Plan, str]:
    """Return the plan of a task, and why it lacks the code of the models and has all baselines, "" if it does not."""
    rendered.check_fields()
    try:
        fields = _validate(rendered, task_key, rendered.resolve_fields(settings.storage))
        return rendered.plan_application(task_key, settings, fields), ""
    except (UnavailableError, OSError, RuntimeError) as error:
        if not find_all(rendered.SPEC, rendered.spec_fields(), Kind.APPLIED_MODEL):
            raise
        # What reads no storage: the names alone.
        fields = _validate(rendered, task_key, JobOperator.resolve_fields(rendered, settings.storage))
        plan = rendered.plan_application(task_key, settings, fields, reads_models=False)
        return plan, _describe_unreadable(rendered, error)


def _validate(rendered: JobOperator, task_key: TaskKey, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of the spec as validated, or as they are while some are not known."""
    spec, _ = validated(rendered.SPEC, {"task_key": task_key} | fields, rendered.option_names())
    if spec and not is_pending(fields):
        return dict(spec.model_dump(mode="json"))
    return {"task_key": task_key.model_dump()} | fields


def _describe_unreadable(rendered: JobOperator, error: Exception) -> str:
    return f"{rendered.title}: the storage of connection {rendered.conn_id!r} cannot be read: {error}"


def _variables() -> dict[str, VariableAccessor]:
    return {"value": VariableAccessor(deserialize_json=False), "json": VariableAccessor(deserialize_json=True)}


def _render(task: JobOperator, value: Any, context: Mapping[str, Any], root: str) -> Any:
    """Render the templates in `value` whose variables are known before a run; outputs are below `root`."""
    if isinstance(value, PlainXComArg):
        return _render_result(value, root)
    if isinstance(value, Mapping):
        return {key: _render(task, item, context, root) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_render(task, item, context, root) for item in value]
    if isinstance(value, Memory | Placement):
        return replace(value, **_render(task, vars(value), context, root))
    if not is_pending(value):
        return value
    environment = task.get_template_env(task.dag).overlay(undefined=jinja2.StrictUndefined)
    try:
        return task.render_template(value, context, environment)
    except Exception:  # any error of a template means that its value is not known yet
        return UNRENDERED if isinstance(value, ResolveMixin) else value


def _render_result(result: PlainXComArg, root: str) -> Any:
    """Return what is known before a run of the result of another task, or of one of its keys."""
    upstream = result.operator
    if not isinstance(upstream, JobOperator) and not (isinstance(upstream, HasOptions) and upstream.OUTPUT):
        return str(result)
    if result.key == "uri":
        return _locate_output(upstream, root)
    if result.key != BaseXCom.XCOM_RETURN_KEY:
        return UNRENDERED
    of_dataset = {"content_hash": UNRENDERED} if upstream.OUTPUT == "dataset" else {}
    return {"uri": _locate_output(upstream, root)} | of_dataset


def _locate_output(upstream: HasOptions, root: str) -> str:
    """Return the URI of what another task writes; it may be a template."""
    name = upstream.output_name
    return uris.resolve(root, name) if isinstance(name, str) else UNRENDERED


def _row(plan: Plan) -> list[str]:
    has_queues = find_cluster(plan.spark).has_queues
    return [
        plan.job.task_key.task,
        plan.spark.master,
        plan.queue if has_queues else "-",
        (plan.job.placement.node_label or "-") if has_queues else "-",
        plan.containers,
        plan.py_files[0].rsplit("/", 1)[-1],
    ]


def _details(plan: Plan) -> str:
    lines = [f"{plan.job.task_key.task}: {plan.job.operator}", *(f"  {note}" for note in plan.notes)]
    spec = {name: value for name, value in plan.job.spec.items() if name != "task_key"}
    lines += [f"  {name} = {value if isinstance(value, str) else json.dumps(value)}" for name, value in spec.items()]
    lines += [f"  --conf {name}={value}" for name, value in sorted(plan.conf.items())]
    return "\n".join(lines)
