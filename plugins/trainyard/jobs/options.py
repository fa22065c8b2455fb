"""Declare options: defaults come from the spec, values may be templates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, Union

from pydantic import BaseModel

T = TypeVar("T")
Templated = Union[T, str]  # noqa: UP007
"""A value, or a template that renders to one."""


def default(model: type[BaseModel], field: str) -> Any:
    """Return the default of a field of `model`."""
    return model.model_fields[field].get_default(call_default_factory=True)


def source_fields(source: Any, format: str, options: Mapping[str, str] | None) -> Any:
    """Return a spec's `source`: a dict unchanged, or a path with its format and options."""
    if isinstance(source, Mapping) and "uri" not in source:
        return source
    path = source["uri"] if isinstance(source, Mapping) else source
    return {"format": format, "path": path, "options": options or {}}
