"""The pages of what a DAG uses: operators, sensors, triggers and hooks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from stack.docs import docstrings
from stack.docs.markdown import code, page, section, table
from stack.docs.options import constructor_table, dataclass_table
from stack.docs.results import RESULTS
from trainyard import hooks, links, operators, sensors, triggers
from trainyard.jobs.operator import JobOperator
from trainyard.jobs.options.base import ATTRIBUTES
from trainyard.operators.bases.spark_stage import SparkStageOperator
from trainyard.operators.bases.worker_group import WorkerGroupOperator
from trainyard.schemas.results import EnsembleResult, EvaluationsResult, PromotionResult, Result
from trainyard.sensors.change import ChangeSensor

STAGES = (
    operators.ExportOperator, operators.FeaturizeOperator, operators.TrainOperator, operators.ScriptOperator,
    operators.EvaluateOperator, operators.PredictOperator,
)  # fmt: skip
"""The operators that run an application."""
OTHERS = (operators.EnsembleOperator, operators.PromoteOperator, operators.PreflightOperator, operators.ReapOperator)
SENSORS = (sensors.CapacitySensor, sensors.DatasetSensor, sensors.ChampionSensor, sensors.ApplicationSensor)
TRIGGERS = (triggers.DatasetTrigger, triggers.ChampionTrigger, triggers.ApplicationEndTrigger)
HOOKS = (hooks.TrainyardHook, hooks.YarnHook)
OF_TASKS: dict[type, type[Result]] = {
    operators.EnsembleOperator: EnsembleResult,
    operators.PromoteOperator: PromotionResult,
}
"""What operators return that run no application."""
OF_SEVERAL: dict[type, type[Result]] = {operators.EvaluateOperator: EvaluationsResult}
"""What an operator returns for several models, where it also takes one."""
ABOUT: dict[type, str] = {
    operators.ExportOperator: "ExportOperator",
    SparkStageOperator: "Options of all operators that run on Spark's executors",
    WorkerGroupOperator: "Options of all operators that run a worker group",
    JobOperator: "Options of all operators that run an application",
}
"""The section with the options of each base class."""
TOPICS: dict[type, str] = {
    operators.ExportOperator: "what is exported",
    SparkStageOperator: "executors",
    WorkerGroupOperator: "cores",
    JobOperator: "memory, placement, Spark and waiting",
}
"""What the options of each base class are about."""
GUIDES = {
    "ExportOperator": "[splits](../how-to/data/splits.md), [partitions](../how-to/data/backfill.md), "
    "[quality checks](../how-to/data/quality-checks.md)",
    "FeaturizeOperator": "[transfer](../how-to/training/transfer.md)",
    "TrainOperator": "[strategies](../how-to/training/strategy.md), [resume](../how-to/training/resume.md), "
    "[sweeps](../how-to/training/sweep.md)",
    "ScriptOperator": "[scripts](../how-to/training/scripts.md)",
    "EvaluateOperator": "[evaluate](../how-to/models/evaluate.md), [metrics](metrics.md)",
    "PredictOperator": "[predict](../how-to/models/predict.md)",
    "EnsembleOperator": "[ensembles](../how-to/models/ensemble.md)",
    "PromoteOperator": "[promote](../how-to/models/promote.md)",
    "PreflightOperator": "[preflight](../how-to/cluster/preflight.md)",
    "ReapOperator": "[orphaned applications](../how-to/operations/orphans.md)",
    "CapacitySensor": "[wait for capacity](../how-to/cluster/capacity.md)",
    "DatasetSensor": "[schedules](../how-to/operations/schedule.md)",
}
"""The how-to guides about a class."""
INTRODUCTION = """All are imported from `trainyard.operators`. *Template* says whether an option is a template field: it
may have Jinja templates and results of other tasks, and what they render to is checked again. Fields of `Memory` and
`Placement` may be templates too, for example `Placement(queue="{{ var.value.queue }}")`. Options of Airflow's
`BaseOperator`, such as `retries` and `pool`, apply to every operator."""
ASSETS = """An operator that writes a dataset, a model, predictions or a champion has an outlet: an Asset with the name
of its output, or `trainyard://CONN_ID/NAME` with another connection than `trainyard_default`. The extra of its events
has the result without `uri`. `trainyard.operators.asset(name, conn_id="trainyard_default")` returns the Asset, for
`DAG(schedule=[...])`: [schedules](../how-to/operations/schedule.md)."""


def render_operators() -> str:
    """Return the page of operators, `Memory` and `Placement`."""
    return page(
        "Operators",
        INTRODUCTION,
        *(_render_class(operator) for operator in (*STAGES, *OTHERS)),
        *(_render_base(base) for base in ABOUT if base is not operators.ExportOperator),
        section("Memory", docstrings.read(operators.Memory).text, dataclass_table(operators.Memory)),
        section("Placement", docstrings.read(operators.Placement).text, dataclass_table(operators.Placement)),
        section("Links", "Buttons of a task that runs an application; their addresses are XComs.", _links_table()),
        section("Assets", ASSETS),
    )


def render_sensors() -> str:
    """Return the page of sensors, and of triggers for asset watchers."""
    common = constructor_table(ChangeSensor, [ChangeSensor], _templates(ChangeSensor))
    return page(
        "Sensors and triggers",
        "Sensors are imported from `trainyard.sensors`, triggers from `trainyard.triggers`. A sensor returns the "
        "payload of its trigger. A trigger is also the watcher of an asset: "
        "[schedules](../how-to/operations/schedule.md).",
        *(_render_class(sensor) for sensor in SENSORS),
        section(
            "Options of all sensors",
            "Beside those of Airflow's `BaseSensorOperator`, such as `poke_interval`, `timeout` and `soft_fail`.",
            common,
        ),
        *(section(one.__name__, docstrings.read(one).text, constructor_table(one, [one])) for one in TRIGGERS),
    )


def render_hooks() -> str:
    """Return the page of hooks."""
    return page(
        "Hooks",
        "Imported from `trainyard.hooks`. The fields of their connections are in [connections](connections.md).",
        *(section(hook.__name__, docstrings.read(hook).text, _hook_table(hook)) for hook in HOOKS),
    )


def _render_class(owner: type) -> str:
    """Return the section of an operator or sensor."""
    guides = GUIDES.get(owner.__name__)
    return section(
        owner.__name__,
        docstrings.read(owner).text,
        f"How-to: {guides}." if guides else "",
        constructor_table(owner, [owner], _templates(owner)) if "__init__" in vars(owner) else "",
        _inherited(owner),
        _render_result(owner),
    )


def _render_base(base: type) -> str:
    return section(ABOUT[base], constructor_table(base, [base], _templates(base)), _render_defaults(base))


def _render_result(owner: type) -> str:
    """Return the table of what a class returns."""
    result = owner.SPEC.RESULT if issubclass(owner, JobOperator) else OF_TASKS.get(owner)
    keys = _result_table(docstrings.read(result).entries if result else RESULTS.get(owner.__name__, {}))
    several = _result_table(docstrings.read(OF_SEVERAL[owner]).entries) if owner in OF_SEVERAL else ""
    beside = several and f"With `models`:\n\n{several}"
    return section(f"Result of {owner.__name__}", keys, beside, level=3) if keys else ""


def _result_table(keys: Mapping[str, str]) -> str:
    header = ["XCom key of `return_value`", "meaning"]
    return table(header, [[code(key), meaning] for key, meaning in keys.items()])


def _render_defaults(base: type) -> str:
    """Return the default memory of each operator, where the options of all are described."""
    if base is not JobOperator:
        return ""
    rows = [
        [one.__name__, *(code(f"Memory(heap={size.heap!r}, native={size.native!r})") for size in _sizes(one))]
        for one in STAGES
    ]
    return "Without `memory` and `driver_memory`:\n\n" + table(["operator", "each executor", "driver"], rows)


def _sizes(operator: Any) -> tuple[Any, Any]:
    return operator.REQUIREMENTS.memory, operator.REQUIREMENTS.driver_memory


def _inherited(owner: type) -> str:
    """Return a sentence with links to the options of base classes."""
    bases = [base for base in ABOUT if issubclass(owner, base) and ABOUT[base] != owner.__name__]
    if not bases:
        return ""
    linked = ", ".join(f"[{TOPICS[base]}](#{_slug(ABOUT[base])})" for base in bases)
    return f"Further options: {linked}."


def _slug(heading: str) -> str:
    return heading.lower().replace("'", "").replace(" ", "-")


def _templates(owner: type) -> Collection[str]:
    """Return the options that may be templates."""
    fields = set(getattr(owner, "template_fields", ()))
    return fields | {option for option, attribute in ATTRIBUTES.items() if attribute in fields}


def _links_table() -> str:
    rows = [[link.name, code(link.KEY), docstrings.read(link).text] for link in links.LINKS]
    return table(["link", "XCom key", "leads to"], rows)


def _hook_table(hook: Any) -> str:
    rows = [
        ["connection type", code(hook.conn_type)],
        ["default connection", code(hook.default_conn_name)],
        ["`get_conn()`", docstrings.read(hook.get_conn).text],
        ["`test_connection()`", docstrings.read(hook.test_connection).text],
    ]
    return table(["", "value"], rows)
