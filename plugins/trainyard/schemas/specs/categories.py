"""The options of columns that become indices."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from trainyard.schemas.document import Part
from trainyard.schemas.specs.fields import Name

MAX_VALUES = 1_000_000
"""The most values of a column. An index is for values that come again; more are keys, or free text."""


class Category(Part):
    """Which values of a column have an index of their own."""

    min_count: Annotated[int, Field(ge=1)] = 1
    """The number of training rows from which on a value has one."""
    max_size: Annotated[int, Field(ge=1, le=MAX_VALUES)] | None = None
    """How many values have one, the most frequent. None is all."""


def _by_name(value: Any) -> Any:
    """Return a dict of options in place of a list of names."""
    if isinstance(value, str):
        raise ValueError(f"write a list of columns, for example [{value!r}]")
    if isinstance(value, list | tuple):
        if not all(isinstance(name, str) for name in value):
            raise ValueError("write a list of columns, for example ['city']")
        return dict.fromkeys(value, Category())
    return value


Categories = Annotated[dict[Name, Category], BeforeValidator(_by_name)]
"""Column -> options, or a list of columns."""
