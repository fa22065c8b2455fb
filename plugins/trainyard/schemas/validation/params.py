"""Parameters of user code: what templates render to is text, also where the function takes a number."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from trainyard.errors import TrainyardError

_SIMPLE = (int, float, bool, NoneType)


def convert_texts(option: str, function: Callable[..., Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with numbers and truth values in place of their texts, as the function's annotations say.

    A parameter that may be a text, or that has no annotation of numbers alone, stays as it is.

    Args:
        option: The option that has the parameters, for the error.
        function: The function that is called with them.
        params: The parameters by name.

    Raises:
        TrainyardError: A text is not what the annotation says.
    """
    try:
        hints = get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):  # imported for type checkers alone, or no function
        hints = {}
    converted = dict(params)
    for name, value in params.items():
        hint = hints.get(name)
        if isinstance(value, str) and hint is not None and _is_simple(hint):
            try:
                converted[name] = TypeAdapter(hint).validate_python(value)
            except ValidationError:
                raise TrainyardError(
                    f"{option}: {name}={value!r} is not of the type that the function declares, {_describe(hint)}."
                ) from None
    return converted


def _is_simple(hint: Any) -> bool:
    """Return whether a type is one of numbers and truth values, or a union of such types and None."""
    if get_origin(hint) in (Union, UnionType):
        return all(part in _SIMPLE for part in get_args(hint))
    return hint in (int, float, bool)


def _describe(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)
