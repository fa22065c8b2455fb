"""Tables of options: of constructors, dataclasses and pydantic models."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Sequence
from typing import Any

from pydantic import BaseModel

from stack.docs import docstrings
from stack.docs.markdown import code, table

_TEMPLATED = re.compile(r"Templated\[([^\[\]]+)\]")
REQUIRED = "required"


def constructor_table(owner: type, described: Sequence[type], templated: Collection[str] | None = None) -> str:
    """Return the table of a constructor's own options.

    Args:
        owner: The class whose constructor declares the options.
        described: Classes whose docstrings describe them.
        templated: The options that may be templates; None leaves the column out.
    """
    texts = {name: text for one in described for name, text in docstrings.read(one).entries.items()}
    rows = []
    for parameter in inspect.signature(vars(owner)["__init__"]).parameters.values():
        if parameter.name in ("self", "args") or parameter.kind is inspect.Parameter.VAR_KEYWORD:
            continue
        row = [code(parameter.name), code(describe_type(parameter.annotation)), describe_default(parameter.default)]
        if templated is not None:
            row.append("yes" if parameter.name in templated else "no")
        rows.append([*row, texts[parameter.name]])
    return table(["option", "type", "default", *(["template"] if templated is not None else []), "meaning"], rows)


def dataclass_table(owner: type) -> str:
    """Return the table of a dataclass's fields."""
    return constructor_table(owner, [owner])


def model_table(model: type[BaseModel], without: Collection[str] = ()) -> str:
    """Return the table of a pydantic model's own fields."""
    texts = docstrings.read(model).entries
    rows = [
        [code(name), code(describe_type(annotation)), describe_default(model_default(model, name)), texts.get(name, "")]
        for name, annotation in inspect.get_annotations(model).items()
        if name in model.model_fields and name not in without
    ]
    return table(["option", "type", "default", "meaning"], rows)


def model_default(model: type[BaseModel], name: str) -> Any:
    """Return the default of a field; `inspect.Parameter.empty` for a required one."""
    field = model.model_fields[name]
    return inspect.Parameter.empty if field.is_required() else field.get_default(call_default_factory=True)


def describe_type(annotation: Any) -> str:
    """Return an annotation as users read it."""
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    text = _TEMPLATED.sub(r"\1", text)
    text = re.sub(r"Annotated\[(\w+), Field\((.*?)\)\]", r"\1", text)
    return re.sub(r"\b(?:Positive|NonNegative)(Int|Float)\b", lambda match: match[1].lower(), text)


def describe_default(value: Any) -> str:
    """Return a default as users write it."""
    if value is inspect.Parameter.empty:
        return REQUIRED
    return code(repr(list(value)) if isinstance(value, tuple) and not value else repr(value))
