"""How the rows of a dataset are divided into splits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import date, datetime
from itertools import pairwise
from typing import Annotated, Any

from pydantic import AfterValidator, PlainValidator, PositiveFloat, TypeAdapter

from trainyard.schemas.specs.fields import Name
from trainyard.schemas.types import SPLIT_NAME, VALID_SPLIT_NAME

FRACTIONS = {"train": 0.8, "validation": 0.1, "test": 0.1}
"""The splits of an export that names none."""


def _split_name(value: str) -> str:
    if not SPLIT_NAME.fullmatch(value):
        raise ValueError(f"it is not a valid name of a split; {VALID_SPLIT_NAME}")
    return value


def _sum_to_one(value: dict[str, float]) -> dict[str, float]:
    total = sum(value.values())
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        raise ValueError(f"they sum to {total:g}; fractions must sum to 1")
    return value


def _increasing_times(value: dict[str, str]) -> dict[str, str]:
    try:
        times = [datetime.fromisoformat(_with_dashes(text)) for text in value.values()]
        increase = all(earlier < later for earlier, later in pairwise(times))
    except (ValueError, TypeError):
        raise ValueError(
            "write fractions, or a date or a time for each split, for example {'validation': '2026-10-01', 'test': "
            "'2026-11-01'}"
        ) from None
    if not increase:
        raise ValueError("write the earlier dates first")
    if "train" in value:
        raise ValueError("remove 'train', whose rows are those before all dates")
    return value


def _with_dashes(text: str) -> str:
    """Return a time that Spark understands, too: Python also takes 20261001 and 2026-W40-4."""
    if not re.match(r"\d{4}-\d\d-\d\d", text):
        raise ValueError(text)
    return text


_SplitName = Annotated[str, AfterValidator(_split_name)]
_FRACTIONS = TypeAdapter[Any](Annotated[dict[_SplitName, PositiveFloat], AfterValidator(_sum_to_one)])
_TIMES = TypeAdapter[Any](Annotated[dict[_SplitName, str], AfterValidator(_increasing_times)])
_COLUMN = TypeAdapter[Any](Name)


def have_times(splits: Any) -> bool:
    """Return whether splits begin at times; fractions may be texts, too, since Airflow renders templates to texts."""
    return isinstance(splits, Mapping) and any(isinstance(at, str) and not _is_fraction(at) for at in splits.values())


def _is_fraction(text: str) -> bool:
    """Return whether a text may be a fraction, and not a time such as 20261001."""
    try:
        return not re.fullmatch(r"\d{4,}", text) and math.isfinite(float(text))
    except ValueError:
        return "{{" in text or "{%" in text


def _parse(value: Any) -> Any:
    if isinstance(value, str):
        if value.lstrip().startswith("{") and not value.lstrip().startswith(("{{", "{%")):
            raise ValueError("it is the text of a dict; write one, or render_template_as_native_obj=True of the DAG")
        return _COLUMN.validate_python(value)
    if isinstance(value, Mapping):
        value = {name: at.isoformat() if isinstance(at, date) else at for name, at in value.items()}
    if not have_times(value):
        return _FRACTIONS.validate_python(value)
    if numbers := [name for name, at in value.items() if isinstance(at, int | float)]:
        raise ValueError(f"{numbers[0]!r} has a fraction, and others have times; write one or the other for all")
    return _TIMES.validate_python(value)


Splits = Annotated[dict[str, float] | dict[str, str] | str, PlainValidator(_parse)]
"""Fractions that sum to 1, or the ISO 8601 date or time at which each split begins, or the column that names splits."""
