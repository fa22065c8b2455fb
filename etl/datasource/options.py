"""The options of the `dataset` format, as given to `df.write` and `spark.read`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from trainyard.errors import TrainyardError
from trainyard.schemas.document import complaints
from trainyard.schemas.manifest import Provenance
from trainyard.schemas.specs.source import Drift, Expectation

T = TypeVar("T")
DEFAULT_SPLIT = "train"
_SPLIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_WRITE = (
    "path", "splitColumn", "splits", "shapes", "variableLength", "rowsPerBatch", "partition", "expect", "drift", "provenance",
)  # fmt: skip
_READ = ("path", "split", "version", "since", "verify")


@dataclass(frozen=True)
class WriteOptions:
    """How a DataFrame becomes batches.

    `split_column` says each row's split and is not stored; without it all rows are in `train`.
    `splits` declares the splits and their order: each must get rows, and no row may name another.
    `shapes` gives flat array columns a tensor shape; columns in `variable_length` may vary in length. With a `partition`
    the rows become this part of the dataset, and the rest of it stays. What is not as `expect` says, or has drifted
    too far, is not kept.
    """

    path: str
    split_column: str | None = None
    splits: tuple[str, ...] = ()
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    variable_length: tuple[str, ...] = ()
    rows_per_batch: int = 4096
    partition: str | None = None
    expect: tuple[tuple[str, Expectation], ...] = ()
    drift: Drift | None = None
    provenance: Provenance | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> WriteOptions:
        """Raises TrainyardError that names the option, its value, and what is accepted."""
        options = _known(given, _WRITE, "writing")
        splits = _names(options.get("splits", ""))
        for split in splits:
            check_split_name(split)
        return cls(
            path=_path(options),
            split_column=options.get("splitColumn"),
            splits=splits,
            shapes=_shapes(options.get("shapes", "{}")),
            variable_length=_names(options.get("variableLength", "")),
            rows_per_batch=_positive("rowsPerBatch", options.get("rowsPerBatch", "4096")),
            partition=options.get("partition"),
            expect=tuple(_parsed("expect", options.get("expect", "{}"), dict[str, Expectation]).items()),
            drift=_parsed("drift", options["drift"], Drift) if "drift" in options else None,
            provenance=_parsed("provenance", options["provenance"], Provenance) if "provenance" in options else None,
        )


@dataclass(frozen=True)
class ReadOptions:
    """What to read of a dataset: one split or, by default, all; checksums are verified on request.

    `version` is the newest by default; with `since` only what came after that version is read.
    """

    path: str
    split: str | None = None
    version: int | None = None
    since: int | None = None
    verify: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> ReadOptions:
        """Raises TrainyardError that names the option, its value, and what is accepted."""
        options = _known(given, _READ, "reading")
        verify = options.get("verify", "false").lower()
        if verify not in ("true", "false"):
            raise TrainyardError(f"option verify={options['verify']!r} is neither true nor false.")
        numbers = {name: _positive(name, options[name]) for name in ("version", "since") if name in options}
        return cls(path=_path(options), split=options.get("split"), verify=verify == "true", **numbers)


def check_split_name(name: str) -> None:
    """Split names become parts of file names."""
    if not _SPLIT_NAME.fullmatch(name):
        raise TrainyardError(f"{name!r} cannot name a split; use letters, digits, '_', '-' and '.', such as 'train'.")


def provenance_of(options: WriteOptions, write_id: str) -> Provenance:
    """The provenance given, or the least there is to say: which write, and when."""
    return options.provenance or Provenance(
        application=f"write {write_id}", written_at=datetime.now(UTC).isoformat(timespec="seconds")
    )


def _known(given: Mapping[str, str], names: tuple[str, ...], verb: str) -> dict[str, str]:
    """`given`, whose keys are matched whatever their case, under the names as documented."""
    spelled = {name.lower(): name for name in names}
    for key in given:
        if key.lower() not in spelled:
            raise TrainyardError(f"{key!r} is not an option for {verb} batches; there are {', '.join(names)}.")
    return {spelled[key.lower()]: value for key, value in given.items()}


def _path(options: Mapping[str, str]) -> str:
    if "path" not in options:
        raise TrainyardError("batches need a place: give it to save(...) or load(...), or as option 'path'.")
    return options["path"]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _positive(name: str, text: str) -> int:
    if not text.isdigit() or int(text) == 0:
        raise TrainyardError(f"option {name}={text!r} is not a positive whole number.")
    return int(text)


def _shapes(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    try:
        found: Any = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(map(_is_shape, found.values())):
        raise TrainyardError(f'option shapes={text!r} is not JSON like {{"image": [1, 8, 8]}}, sizes from 1 on.')
    return tuple((name, tuple(shape)) for name, shape in found.items())


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(size) is int and size > 0 for size in value)


def _parsed(name: str, text: str, kind: type[T]) -> T:
    """The value of an option that is JSON."""
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        raise TrainyardError(f"option {name} is not valid: {complaints(error)}") from error
