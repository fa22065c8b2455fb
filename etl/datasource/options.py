"""The options of the Spark data source `trainyard`: the fields of `WriteOptions` and `ReadOptions`, in camel case.

Option names are matched without regard to case; every value is a string.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.fitted_state import FittedReference
from trainyard.schemas.datasets.manifest import Provenance
from trainyard.schemas.specs.source import Drift, Expectation, RowCount
from trainyard.schemas.types import SPLIT_NAME, VALID_SPLIT_NAME
from trainyard.schemas.validation.complaints import complaints

T = TypeVar("T")
DEFAULT_SPLIT = "train"


@dataclass(frozen=True)
class WriteOptions:
    """The options of `df.write.format("trainyard").option(...).save(path)`, parsed."""

    path: str
    """The directory of the dataset, as a URI; usually given to `save(path)`. Required."""
    split_column: str | None = None
    """The string column that names each row's split. It is not stored. Default: no column, and all rows are in the
    split `train`."""
    splits: tuple[str, ...] = ()
    """The splits and their order, separated by commas: "train,validation,test". Each must have rows (if a partition is
    written, a split without rows is a warning), and no row may name another split. Default: the splits that occur,
    sorted by name."""
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """The tensor shape of flat array columns, or of one element of a variable-length column, as JSON: {"image": [1, 8,
    8]}. Default: arrays are tensors of one dimension, as long as in the first row."""
    variable_length: tuple[str, ...] = ()
    """The array columns whose length may differ between rows, separated by commas: "tokens,frames"; or, if a name has a
    comma, as JSON: ["tokens, cleaned"]."""
    nullable: tuple[str, ...] = ()
    """The columns of numbers that may be null, as labels that a row does not have, separated by commas, or as JSON: see
    `variableLength`. Default: a null of a column of numbers is an error."""
    rows_per_batch: int = 4096
    """The number of rows in a record batch, the unit that training reads at a time. Default: 4096."""
    partition: str | None = None
    """The name of the partition that these rows become: "2026-01-02". The other partitions stay as they are. Default:
    the rows become the whole dataset."""
    expect: tuple[tuple[str, Expectation], ...] = ()
    """What each column must satisfy in every split, as JSON, with the keys `min`, `max`, `nulls` (the largest fraction
    of nulls), `values` (the only values) and `rows_per_value` (the smallest number of rows of each value): {"label":
    {"values": ["0", "1"]}}. The write fails if it does not; with "severity": "warn" it warns."""
    expect_rows: RowCount | None = None
    """How many rows are written, as JSON: {"min": 1000, "max": 2000}. The write fails if it is another number; with
    "severity": "warn" it warns."""
    drift: Drift | None = None
    """The limits of a column's drift from the current version, measured as a population stability index, as JSON:
    {"warn": 0.1, "fail": 0.25}. The write warns from `warn` on, and fails from `fail` on. "columns" names the columns
    to compare; default: all but dates and times."""
    fitted: FittedReference | None = None
    """What was fitted on the training rows, as the JSON of a `trainyard.schemas.datasets.fitted_state.FittedReference`
    whose document is in the dataset. Default: nothing."""
    provenance: Provenance | None = None
    """What wrote the rows, from what, as the JSON of a `trainyard.schemas.datasets.manifest.Provenance`. Default: a
    random identifier of the write, and the time."""

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> WriteOptions:
        """Return the options from their names and texts.

        Raises:
            TrainyardError: An option is unknown or not valid. The message names the option and its value.
        """
        options = _match_names(values, list_names(cls), "writing")
        expect = _parse_json("expect", options.get("expect", "{}"), dict[str, Expectation])
        if keys := [name for name, expected in expect.items() if expected.key is not None]:
            raise TrainyardError(
                f"expect has a check of column {keys[0]!r} that a write cannot make: whether rows are unique takes a "
                "pass over all of them. Write expect= of ExportOperator, or compare the counts before the write."
            )
        splits = _parse_names(options.get("splits", ""))
        for split in splits:
            check_split_name(split)
        return cls(
            path=_get_path(options),
            split_column=options.get("splitColumn"),
            splits=splits,
            shapes=_parse_shapes(options.get("shapes", "{}")),
            variable_length=_parse_columns(options.get("variableLength", "")),
            nullable=_parse_columns(options.get("nullable", "")),
            rows_per_batch=_parse_integer("rowsPerBatch", options.get("rowsPerBatch", str(cls.rows_per_batch)), 1),
            partition=options.get("partition"),
            expect=tuple(expect.items()),
            expect_rows=_parse_json("expectRows", options["expectRows"], RowCount) if "expectRows" in options else None,
            drift=_parse_json("drift", options["drift"], Drift) if "drift" in options else None,
            fitted=_parse_json("fitted", options["fitted"], FittedReference) if "fitted" in options else None,
            provenance=(
                _parse_json("provenance", options["provenance"], Provenance) if "provenance" in options else None
            ),
        )


@dataclass(frozen=True)
class ReadOptions:
    """The options of `spark.read.format("trainyard").option(...).load(path)`, parsed."""

    path: str
    """The directory of the dataset, as a URI; usually given to `load(path)`. Required."""
    split: str | None = None
    """The split to read. Default: all splits."""
    version: int | None = None
    """The number of the version to read. Default: the current version."""
    since: int | None = None
    """A version number: read only partitions that were written after that version."""
    verify: bool = False
    """With "true" the sha256 of each shard is compared with the manifest before it is read. Default: "false", which
    compares lengths only."""

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> ReadOptions:
        """Return the options from their names and texts.

        Raises:
            TrainyardError: An option is unknown or not valid. The message names the option and its value.
        """
        options = _match_names(values, list_names(cls), "reading")
        verify = options.get("verify", "false").lower()
        if verify not in ("true", "false"):
            raise TrainyardError(f"option verify={options['verify']!r} is not valid; use 'true' or 'false'.")
        minima = {"version": 1, "since": 0}
        numbers = {name: _parse_integer(name, options[name], minima[name]) for name in minima if name in options}
        return cls(path=_get_path(options), split=options.get("split"), verify=verify == "true", **numbers)


def list_names(options: type[WriteOptions | ReadOptions]) -> dict[str, str]:
    """Return the names of the fields by those of their options."""
    words = [(field.name, field.name.split("_")) for field in fields(options)]
    return {"".join([first, *(word.title() for word in rest)]): name for name, (first, *rest) in words}


def check_split_name(name: str) -> None:
    """Check that a split's name can be part of a file name.

    Raises:
        TrainyardError: It has other characters than letters, digits, '_', '-' and '.'.
    """
    if not SPLIT_NAME.fullmatch(name):
        raise TrainyardError(f"{name!r} is not a valid name of a split; {VALID_SPLIT_NAME}.")


def get_provenance(options: WriteOptions, write_id: str) -> Provenance:
    """Return the option `provenance`, or by default the identifier of the write and the time."""
    return options.provenance or Provenance(
        application=f"write {write_id}", written_at=datetime.now(UTC).isoformat(timespec="seconds")
    )


def _match_names(values: Mapping[str, str], names: Iterable[str], verb: str) -> dict[str, str]:
    """Return `values` with keys spelled as in `names`, from keys of any case."""
    spelling = {name.lower(): name for name in names}
    for key in values:
        if key.lower() not in spelling:
            raise TrainyardError(f"{key!r} is not an option for {verb} a dataset; options are {', '.join(names)}.")
    return {spelling[key.lower()]: value for key, value in values.items()}


def _get_path(options: Mapping[str, str]) -> str:
    if "path" not in options:
        raise TrainyardError(
            "the path of the dataset is missing; pass it to save(...) or load(...), or set the option 'path'."
        )
    return options["path"]


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _parse_columns(text: str) -> tuple[str, ...]:
    """Return names separated by commas, or of a list in JSON."""
    try:
        names = json.loads(text) if text.startswith("[") else None
    except ValueError:
        names = None
    return tuple(map(str, names)) if isinstance(names, list) else _parse_names(text)


def _parse_integer(name: str, text: str, minimum: int) -> int:
    if not text.isdecimal() or int(text) < minimum:
        raise TrainyardError(f"option {name}={text!r} is not valid; use an integer of at least {minimum}.")
    return int(text)


def _parse_shapes(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    try:
        shapes: Any = json.loads(text)
    except ValueError:
        shapes = None
    if not isinstance(shapes, dict) or not all(map(_is_shape, shapes.values())):
        raise TrainyardError(
            f"option shapes={text!r} is not valid; use JSON with a list of positive sizes for each column, such as "
            '{"image": [1, 8, 8]}.'
        )
    return tuple((name, tuple(shape)) for name, shape in shapes.items())


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(size) is int and size > 0 for size in value)


def _parse_json(name: str, text: str, kind: type[T]) -> T:
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        raise TrainyardError(f"option {name} is not valid: {complaints(error)}") from error
