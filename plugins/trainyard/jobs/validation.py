"""Refusing bad input: while the DAG is parsed as far as it is known, and again before submitting."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from airflow.sdk.definitions.xcom_arg import XComArg
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainyard.schemas.document import complaint
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.task_key import TaskKey

Spec = TypeVar("Spec", bound=JobSpec)
GROUPS = frozenset({"options"})
"""Parts of a spec whose fields are options of the operator itself."""

_NOWHERE = TaskKey(dag_id="-", run_id="-", task_id="-", directory="-")
_LATER = "{{ known when the task runs }}"


def options_of(operator: type) -> set[str]:
    """Return the names of the keyword arguments that an operator class and its bases accept."""
    constructors = [
        vars(base)["__init__"] for base in operator.__mro__ if "__init__" in vars(base) and base is not object
    ]
    names = {name for constructor in constructors for name in inspect.signature(constructor).parameters}
    return names - {"self", "args", "kwargs"}


def message(operator: str, task_id: Any, clauses: Sequence[str]) -> str:
    """Return the error of an operator, one clause for each problem."""
    return f"{operator} {task_id!r}: {'; '.join(clauses)}."


def unknown_options(given: Iterable[str], known: Iterable[str]) -> list[str]:
    """A clause for each option in `given` that is not `known`, with the nearest known one."""
    known = sorted(known)
    clauses = []
    for name in sorted(set(given).difference(known)):
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"the nearest one is {near[0]!r}" if near else f"known are {', '.join(known)}"
        clauses.append(f"{name!r} is not a known option; {hint}")
    return clauses


def early_complaints(spec: type[JobSpec], fields: Mapping[str, Any]) -> list[str]:
    """What is wrong with `fields` whatever their templates will turn out to be; empty when all is well."""
    known = {"task_key": _NOWHERE} | {name: _without_xcom(value) for name, value in fields.items()}
    left_out: set[tuple[str, ...]] = set()
    while True:
        try:
            spec.model_validate(known)
        except ValidationError as error:
            errors = [item for item in error.errors() if _path(item) not in left_out]
        else:
            return []
        pending = {_path(item) for item in errors if item["loc"] and is_pending(item["input"])}
        if not pending:
            return _clauses(errors)
        left_out |= pending
        known = _without(known, pending)


def validated(spec: type[Spec], fields: Mapping[str, Any]) -> tuple[Spec | None, list[str]]:
    """The spec, or what is wrong with `fields`, all of whose values are known by now."""
    try:
        return spec.model_validate(fields), []
    except ValidationError as error:
        return None, _clauses(error.errors())


def is_pending(value: Any) -> bool:
    """Whether `value` is, or holds, a template."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(is_pending(item) for item in value.values())
    return isinstance(value, list | tuple) and any(is_pending(item) for item in value)


def _without_xcom(value: Any) -> Any:
    if isinstance(value, XComArg):
        return _LATER
    if isinstance(value, Mapping):
        return {key: _without_xcom(item) for key, item in value.items()}
    return [_without_xcom(item) for item in value] if isinstance(value, list | tuple) else value


def _path(item: ErrorDetails) -> tuple[str, ...]:
    """The option that an error is about: the spec's field, or the field of a group."""
    depth = 2 if item["loc"][:1] and item["loc"][0] in GROUPS else 1
    return tuple(str(step) for step in item["loc"][:depth])


def _without(fields: dict[str, Any], paths: set[tuple[str, ...]]) -> dict[str, Any]:
    kept = {name: value for name, value in fields.items() if (name,) not in paths}
    for group in GROUPS.intersection(kept):
        kept[group] = {name: value for name, value in kept[group].items() if (group, name) not in paths}
    return kept


def _clauses(errors: list[ErrorDetails]) -> list[str]:
    """A clause for each error, except those about a whole whose parts have errors of their own."""
    wholes = {item["loc"][:depth] for item in errors for depth in range(1, len(item["loc"]))}
    return [_clause(item) for item in errors if item["loc"] not in wholes]


def _clause(item: ErrorDetails) -> str:
    inside = item["loc"][1:] if item["loc"][:1] and item["loc"][0] in GROUPS else item["loc"]
    return complaint({**item, "loc": inside})
