"""Declare options: defaults come from the spec, values may be templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, Union

from airflow.sdk.definitions.xcom_arg import ResolveMixin
from pydantic import BaseModel

from trainyard.compat import conf

T = TypeVar("T")
Templated = Union[T, str]  # noqa: UP007
"""A value, or a template that renders to one."""


def default(model: type[BaseModel], field: str) -> Any:
    """Return the default of a field of `model`."""
    return model.model_fields[field].get_default(call_default_factory=True)


def or_empty(value: Any) -> Any:
    """Return `value`, or an empty dict for None."""
    return {} if value is None else value


def as_lists(value: Any) -> Any:
    """Return a value with lists in place of other sequences in it, such as the results of a mapped task."""
    if isinstance(value, dict):
        return {key: as_lists(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | tuple):
        return [as_lists(item) for item in value]
    return value


def or_default_deferrable(value: bool | None) -> bool:
    """Return `value`, or for None Airflow's setting `default_deferrable` in section `[operators]`."""
    return conf.getboolean("operators", "default_deferrable", fallback=False) if value is None else value


def source_fields(source: Any, format: str | None, options: Mapping[str, str] | None) -> Any:
    """Return a spec's `source`: a path or the result of another task with its format and options, else unchanged."""
    if isinstance(source, str | ResolveMixin) or (isinstance(source, Mapping) and "uri" in source):
        return {"format": format, "path": source, "options": or_empty(options)}
    return source


def source_names(source: Any) -> dict[str, str]:
    """Return the options that are fields of a spec's `source`, by their path in the spec."""
    if isinstance(source, Mapping) and "uri" not in source:
        return {}
    return {"source.path": "source", "source.format": "format", "source.options": "options"}
