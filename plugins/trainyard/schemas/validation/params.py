"""Parameters of user code: what templates render to is text, also where the function takes a number."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

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
    converted = dict(params)
    for name, value in params.items():
        hint = _read_annotation(function, name) if isinstance(value, str) else None
        if hint is not None and _is_simple(hint):
            may_be_none = NoneType in get_args(hint)
            try:
                converted[name] = None if may_be_none and value == "None" else TypeAdapter(hint).validate_python(value)
            except ValidationError:
                raise TrainyardError(
                    f"{option}: {name}={value!r} is not of the type that the function declares, {_describe(hint)}."
                ) from None
    return converted


def _read_annotation(function: Callable[..., Any], name: str) -> Any:
    """Return the type that a function declares for a parameter; None for one that is unknown, or no type."""
    own = inspect.unwrap(function)
    try:
        annotation = inspect.signature(own).parameters[name].annotation
        # What others are annotated with may be imported for type checkers alone.
        return eval(annotation, own.__globals__) if isinstance(annotation, str) else annotation  # noqa: S307  the user's code
    except Exception:  # an annotation may be any expression
        return None


def _is_simple(hint: Any) -> bool:
    """Return whether a type is one of numbers and truth values, or a union of such types and None."""
    if get_origin(hint) in (Union, UnionType):
        return all(part in _SIMPLE for part in get_args(hint))
    return hint in (int, float, bool)


def _describe(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) else str(hint)
