"""Validate options: while the DAG is parsed as far as they are known, and again before submission."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import Annotated, Any, TypeVar

from airflow.sdk.definitions.xcom_arg import ResolveMixin
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from trainyard.compat import mask_secrets
from trainyard.errors import TrainyardError
from trainyard.schemas.document import Part
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.specs.task_key import TaskKey
from trainyard.schemas.validation.complaints import NOT_GIVEN, complaint
from trainyard.schemas.validation.secrets import EXPOSED, IN_CODE, REDACTED

Options = TypeVar("Options", bound=Part)
NO_NAMES: Mapping[str, str] = {}
_ANY_TASK = TaskKey(dag_id="-", run_id="-", task_id="-", directory="-")
UNRENDERED = "{{ rendered when the task runs }}"
"""The template in place of a value that Airflow resolves when the task runs."""


def message(operator: str, task_id: Any, clauses: Sequence[str]) -> str:
    """Return the error of an operator, one clause for each problem."""
    return f"{operator} {task_id!r}: {'; '.join(clauses)}."


def early_complaints(model: type[Part], fields: Mapping[str, Any], names: Mapping[str, str] = NO_NAMES) -> list[str]:
    """Return what is wrong with `fields` whatever their templates render to; empty if nothing is.

    Args:
        model: The spec, or other options.
        fields: The values, with templates and results of other tasks.
        names: The options of the operator whose names differ from that of their field, by the path of the field; "" for
            a field whose parts are options.
    """
    known = {name: _as_template(value) for name, value in fields.items()}
    if issubclass(model, JobSpec):
        known["task_key"] = _ANY_TASK
    groups = [field for field, name in names.items() if not name]
    ignored: set[tuple[str, ...]] = set()
    while True:
        try:
            model.model_validate(known)
        except ValidationError as error:
            errors = [item for item in error.errors() if _path(item, groups) not in ignored]
            errors = [item for item in errors if not (ignored and item["type"] == NOT_GIVEN)]
        else:
            return []
        pending = {_path(item, groups) for item in errors if item["loc"] and _is_pending(item)}
        beside = [item for item in errors if _path(item, groups) in pending and not _is_pending(item)]
        if beside or not pending:
            return _clauses(beside or errors, names)
        ignored |= pending
        known = _without(known, groups, pending)


def check(operator: Any, model: type[Part]) -> None:
    """Check the attributes of an operator that are fields of `model`, and convert those that Airflow does not render.

    Raises:
        TrainyardError: An attribute is not valid, or is a template that is not rendered.
    """
    refuse(operator, early_complaints(model, _read_attributes(operator, model)))
    for name, field in model.model_fields.items():
        if name not in operator.template_fields:
            try:
                setattr(operator, name, _adapter(field).validate_python(getattr(operator, name)))
            except ValidationError as error:
                refuse(operator, [complaint({**error.errors()[0], "loc": (name,)})])


def convert(operator: Any, model: type[Options]) -> Options:
    """Return the attributes of an operator, whose templates are rendered, as `model`. Raises TrainyardError.

    A value is refused, too, if a template has brought a secret into it.
    """
    refuse(operator, find_masked(operator))
    options, clauses = validated(model, _read_attributes(operator, model))
    refuse(operator, clauses)
    assert options is not None
    return options


def find_masked(operator: Any) -> list[str]:
    """Return a clause for each rendered option of an operator that has a secret which Airflow masks in logs."""
    return [
        f"{name} has a secret of a connection or a Variable, and {EXPOSED}. {IN_CODE}"
        for name in operator.template_fields
        if any(mask_secrets(text) != text for text in _list_texts(getattr(operator, name)))
    ]


def _list_texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in (*value, *value.values()):
            yield from _list_texts(item)
    elif is_dataclass(value):
        yield from _list_texts(vars(value))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _list_texts(item)


def pending_options(operator: Any, model: type[Part]) -> list[str]:
    """Return the attributes of an operator that are fields of `model`, and not valid because of templates in them."""
    try:
        model.model_validate(_read_attributes(operator, model))
    except ValidationError as error:
        return [str(item["loc"][0]) for item in error.errors() if _is_pending(item)]
    return []


def _adapter(field: FieldInfo) -> TypeAdapter[Any]:
    return TypeAdapter(Annotated[field.annotation, field])  # type: ignore[arg-type]


def _read_attributes(operator: Any, model: type[Part]) -> dict[str, Any]:
    return {name: getattr(operator, name) for name in model.model_fields}


def refuse(operator: Any, clauses: Sequence[str]) -> None:
    """Raise TrainyardError with a clause for each problem of an operator, if there are any."""
    if clauses:
        raise TrainyardError(message(type(operator).__name__, operator.task_id, clauses))


def validated(
    model: type[Options], fields: Mapping[str, Any], names: Mapping[str, str] = NO_NAMES
) -> tuple[Options | None, list[str]]:
    """Return the spec, or None and what is wrong with `fields`, which have no templates."""
    try:
        return model.model_validate(fields), []
    except ValidationError as error:
        return None, _clauses(error.errors(), names)


def is_pending(value: Any) -> bool:
    """Return whether `value` is a template or another value that Airflow resolves later, or has one inside."""
    if isinstance(value, ResolveMixin):
        return True
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    if isinstance(value, Mapping):
        return any(is_pending(item) for item in value.values())
    if is_dataclass(value):
        return is_pending(vars(value))
    return isinstance(value, list | tuple) and any(is_pending(item) for item in value)


def _is_pending(item: ErrorDetails) -> bool:
    """Return whether an error may be gone when templates are rendered; a secret is one in a template too."""
    return item["type"] != REDACTED and is_pending(item["input"])


def _as_template(value: Any) -> Any:
    """Return `value` with a template in place of each result of another task, argument of a mapped group, or param."""
    if isinstance(value, ResolveMixin):
        return UNRENDERED
    if isinstance(value, Mapping):
        return {key: _as_template(item) for key, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **_as_template(vars(value)))
    if isinstance(value, tuple):
        return tuple(_as_template(item) for item in value)
    return [_as_template(item) for item in value] if isinstance(value, list) else value


def _path(item: ErrorDetails, groups: Collection[str]) -> tuple[str, ...]:
    """Return the option that an error is about: a field of the spec, or of a group."""
    depth = 2 if item["loc"][:1] and item["loc"][0] in groups else 1
    return tuple(str(step) for step in item["loc"][:depth])


def _without(fields: dict[str, Any], groups: Collection[str], paths: set[tuple[str, ...]]) -> dict[str, Any]:
    kept = {name: value for name, value in fields.items() if (name,) not in paths}
    for group in set(kept).intersection(groups):
        kept[group] = {name: value for name, value in kept[group].items() if (group, name) not in paths}
    return kept


def _clauses(errors: list[ErrorDetails], names: Mapping[str, str]) -> list[str]:
    """Return a clause for each error, except those of a container whose parts have errors of their own."""
    containers = {item["loc"][:depth] for item in errors for depth in range(1, len(item["loc"]))}
    return [_clause(item, names) for item in errors if item["loc"] not in containers]


def _clause(item: ErrorDetails, names: Mapping[str, str]) -> str:
    path = item["loc"]
    for depth in range(1, len(path) + 1):
        if (name := names.get(".".join(map(str, path[:depth])))) is not None:
            return complaint({**item, "loc": (*filter(None, [name]), *path[depth:])})
    return complaint(item)
