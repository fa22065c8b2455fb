"""Describe what a validation refused: the field, its value, and what to write instead."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from trainyard.schemas.validation.secrets import REDACTED, redact

NO_NAMES: Mapping[str, Sequence[str]] = {}
MAX_SHOWN = 200
"""The longest value that is repeated, in characters."""
_NUMBER, _LIST, _DICT = "write a number", "write a list", "write a dict"
_INSTEAD = {
    "bool_parsing": "write True or False",
    "bool_type": "write True or False",
    "dict_type": _DICT,
    "finite_number": _NUMBER,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "greater_than": "write a number greater than {gt:g}",
    "greater_than_equal": "write {ge:g} or more",
    "int_from_float": "write a whole number",
    "int_parsing": "write a whole number",
    "int_parsing_size": "write a smaller number",
    "int_type": "write a whole number",
    "less_than": "write a number less than {lt:g}",
    "less_than_equal": "write {le:g} or less",
    "list_type": _LIST,
    "literal_error": "write {expected}",
    "mapping_type": _DICT,
    "model_attributes_type": _DICT,
    "model_type": _DICT,
    "string_too_short": "write {min_length} or more characters",
    "string_type": "write a string",
    "too_short": "write {min_length} or more values",
    "tuple_type": _LIST,
}
"""What to write instead, by pydantic's type of error."""


NOT_GIVEN = "not_given"
"""The type of the error of a field that another one could be in place of, of which a template may be one."""
SMALLEST_MB = 128
"""A size of memory without a unit is taken for MB from here on."""


def unknown_options(
    names: Iterable[str], known: Iterable[str], familiar: Mapping[str, Sequence[str]] = NO_NAMES
) -> list[str]:
    """Return a clause for each option in `names` that is not `known`, with the one to write instead.

    Args:
        names: The options.
        known: The known ones.
        familiar: Options by the names that other systems have for them; the first known one counts. What is not a name
            is shown as it is. By default the nearest name counts.
    """
    known = sorted(known)
    clauses = []
    for name in sorted(set(names).difference(known)):
        if instead := [option for option in familiar.get(name, ()) if option.partition("=")[0] in known]:
            clauses.append(
                f"{name!r} is not a known option; write {instead[0] if '=' in instead[0] else f'{instead[0]}='}"
            )
            continue
        near = difflib.get_close_matches(name, known, cutoff=0.5)
        near.sort(key=lambda other: other[0] != name[0])  # few mistype the first letter
        hint = f"the nearest one is {near[0]!r}" if near else f"known are {', '.join(known)}"
        clauses.append(f"{name!r} is not a known option; {hint}")
    return clauses


def complaints(error: ValidationError) -> str:
    """Return what a validation refused: for each field its name, its value and what to write."""
    return "; ".join(complaint(item) for item in error.errors())


def complaint(item: ErrorDetails) -> str:
    """Return one error of a ValidationError as a clause of a sentence."""
    *path, last = (str(step) for step in item["loc"]) if item["loc"] else [""]
    field = ".".join([*path, last])
    if item["type"] == "extra_forbidden":
        return f"{field} is not a known option; correct its name, or remove it"
    if item["type"] == "missing":
        return f"{field} is missing"
    if item["type"] == REDACTED:
        return f"{field}: {item['msg']}"
    if item["type"] == NOT_GIVEN:
        return item["msg"]
    if last == "[key]":
        return f"{'.'.join(path[:-1])} has the key {_shown(item['input'])}; {_instead(item)}"
    return f"{field}={_shown(item['input'], last)}: {_instead(item)}" if field else _instead(item)


def _instead(item: ErrorDetails) -> str:
    context, value = item.get("ctx", {}), item["input"]
    if item["type"] == "value_error":
        return str(context["error"])
    text = _INSTEAD.get(item["type"], "this value is not valid").format(**context)
    is_size = any("memory" in str(step) for step in item["loc"])
    return text + _example(item["type"], value, is_size)


def _example(kind: str, value: Any, is_size: bool) -> str:
    """Return an example of the value in the expected type, where it is clear what was meant."""
    if kind == "string_type" and isinstance(value, int | float):
        unit = ("g" if value < SMALLEST_MB else "m") if is_size else ""
        return f", for example {f'{value}{unit}'.lower()!r}"
    if kind == "string_type" and value is None:
        return "; it is None where the task that should return it was skipped, or returned nothing"
    if kind in ("tuple_type", "list_type") and isinstance(value, str):
        return f", for example [{_shown(value)}]"
    return ""


def _shown(value: Any, name: str = "") -> str:
    """Return the value of `name` as Python writes it, without secrets, and not longer than `MAX_SHOWN`."""
    redacted: Mapping[str, Any] = redact({name: value})
    text = repr(redacted[name])
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
