"""What an export reads, and what its data must satisfy."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from pydantic_core import PydanticCustomError

from trainyard.schemas.document import Part
from trainyard.schemas.references import Reference
from trainyard.schemas.specs.fields import (
    Inlined,
    Location,
    Name,
    SparkText,
    as_texts,
    refuse_secrets,
    refuse_string,
)
from trainyard.schemas.specs.job import JobSpec
from trainyard.schemas.validation.complaints import NOT_GIVEN
from trainyard.schemas.validation.secrets import IN_CREDENTIAL_STORE, REDACTED, find_secrets

FORMAT = "trainyard"
"""The format of Trainyard's datasets."""
OF_CATALOG = ("table", "query")
"""What Spark's catalog has in place of a path."""
LAKEHOUSES = ("delta", "iceberg")
"""The formats of tables with versions."""
VERSION_OPTIONS = ("versionAsOf", "timestampAsOf")
"""The options that choose a version of a table, as Delta and Spark's catalogs have them; Spark ignores their case."""
SINCE = "since"
"""The option of a table with versions that names one after which rows were added: only these are read."""
_TABLE_VERSION = re.compile(r"(?P<table>.+)@(?P<version>\d+)")
_ENDING = re.compile(r"\.([A-Za-z]\w*)/*$")
_COMPRESSED = re.compile(r"\.(bz2|gz|lz4|snappy|zst|zstd)/*$")
_FORMATS = {
    "avro": "avro", "csv": "csv", "json": "json", "jsonl": "json", "ndjson": "json", "orc": "orc", "parquet": "parquet",
    "txt": "text", "xml": "xml",
}  # fmt: skip
"""Endings of files, and the format of `spark.read` for them."""
_IMAGES = frozenset({"bmp", "gif", "jpeg", "jpg", "png", "tif", "tiff", "webp"})


def _format_of(path: str) -> str:
    """Return the format of a path by its ending: parquet for none. Raises ValueError for an ending of no format."""
    match = _ENDING.search(_COMPRESSED.sub("", path))
    ending = match[1].lower() if match else "parquet"
    if ending in _FORMATS:
        return _FORMATS[ending]
    message = "the ending of path {path} is that of no format; write the format too, for example format='{format}'"
    example = "csv" if ending == "tsv" else "binaryFile" if ending in _IMAGES else "parquet"
    raise PydanticCustomError(REDACTED, message, {"path": repr(path), "format": example})


def _without_credentials(text: str) -> str:
    refuse_secrets(find_secrets({"it": text}), f"{IN_CREDENTIAL_STORE}; `prepare` can read it from there")
    return text


def _without_secrets(options: dict[str, str]) -> dict[str, str]:
    refuse_secrets(find_secrets(options), f"{IN_CREDENTIAL_STORE}; `prepare` can read it from there")
    return options


class Source(Part):
    """What Spark reads: files or another source of a format of `spark.read`, a table of the catalog, or a query.

    A `format` of None is that of the path's ending.
    """

    format: str
    """The format of a `source` that is a path: any of `spark.read`. By default that of the path's ending (`.csv`,
    `.json`, `.jsonl`, `.orc`, `.txt`, `.avro`, `.xml`), and parquet without one."""
    path: Location | None = None
    """The path: a name below the storage root, or a URI."""
    options: Annotated[dict[str, SparkText], AfterValidator(_without_secrets)] = {}
    """The options of `spark.read`, for a `source` that is a path, such as `{"header": True}`."""
    table: Annotated[Name, AfterValidator(_without_credentials)] | None = None
    """A table of Spark's catalog, in place of format and path: "sales.orders", or "sales.orders@42" for a version."""
    query: Annotated[Name, AfterValidator(_without_credentials)] | None = None
    """A query of Spark SQL, in place of format and path."""

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, value: Any) -> Any:
        if not isinstance(value, Mapping | Source):
            raise ValueError("write a path, or a dict of format, path and options, of table, or of query")
        if isinstance(value, Mapping):
            value = _split_version(value)
        if not isinstance(value, Mapping) or value.get("format") is not None:
            return value
        if kind := next((name for name in OF_CATALOG if value.get(name) is not None), None):
            return {**value, "format": kind}
        if isinstance(value.get("path"), str):
            return {**value, "format": _format_of(value["path"])}
        if value.keys() <= {"format", "path"} and value.get("path") is None:
            raise ValueError("write a path, or a dict of format, path and options, of table, or of query")
        return value

    @model_validator(mode="after")
    def _check_kind(self) -> Source:
        given = [name for name in ("path", *OF_CATALOG) if getattr(self, name) is not None]
        is_of_catalog = {self.format, *given}.intersection(OF_CATALOG)
        if len(given) > 1 or (given and is_of_catalog and self.format != given[0]):
            what = given if len(given) > 1 else ["format", *given]
            raise ValueError(f"{' and '.join(what)} exclude each other; remove one of them")
        if not given and self.format in OF_CATALOG:
            raise ValueError(f"format={self.format!r} is not one of spark.read; write {{{self.format!r}: ...}}")
        if self.query and self.options:
            raise ValueError("a query has no options; write them in the query, or register a view in prepare")
        if self.since and not self.since.isdecimal():
            raise ValueError(
                f"since={self.since!r} of the options is not valid; write the number of a version of the table"
            )
        return self

    @property
    def is_table(self) -> bool:
        """Whether it is a table, of the catalog or by its path, whose versions Spark knows."""
        return self.table is not None or self.format.lower() in LAKEHOUSES

    @property
    def version(self) -> str:
        """The version or the time that the options of a table name, "" if they name none."""
        options = {name.lower(): value for name, value in self.options.items()} if self.is_table else {}
        return next((options[name] for name in map(str.lower, VERSION_OPTIONS) if name in options), "")

    @property
    def since(self) -> str:
        """The version of a table that its options name for the rows that were added later, "" for all rows."""
        options = {name.lower(): value for name, value in self.options.items()} if self.is_table else {}
        return options.get(SINCE, "")

    @property
    def reader_options(self) -> dict[str, str]:
        """The options that Spark's reader gets."""
        return {name: value for name, value in self.options.items() if not self.is_table or name.lower() != SINCE}

    def at_version(self, version: str) -> Source:
        """Return the source at a version of the table."""
        return self.model_copy(update={"options": {**self.options, VERSION_OPTIONS[0]: version}})

    def describe(self) -> str:
        """Return the format and the path, or the table, with its version, and no options: they may have credentials."""
        version = f"@{self.version}" if self.version else ""
        version += f" since {self.since}" if self.since else ""
        if self.table is not None:
            return f"table {self.table}{version}"
        return f"{self.format} at {self.path}{version}" if self.path is not None else self.format

    def references(self) -> Iterator[Reference]:
        """Yield the version of a dataset that the options name; Spark ignores the case of their names."""
        options = {name.lower(): value for name, value in self.options.items()}
        version = options.get("version", "").strip()
        if self.format == FORMAT and version.isdecimal():
            yield Reference(self.path or options.get("path", ""), int(version))


def _split_version(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a source whose table ends with a version, `sales.orders@42`, with the option that reads it."""
    match = _TABLE_VERSION.fullmatch(source["table"]) if isinstance(source.get("table"), str) else None
    options = source.get("options") or {}
    if match is None or not isinstance(options, Mapping):
        return source
    if any(name.lower() in map(str.lower, VERSION_OPTIONS) for name in options):
        raise ValueError(f"table={source['table']!r} and options={dict(options)} have two versions; write one of them")
    return {**source, "table": match["table"], "options": {**options, VERSION_OPTIONS[0]: match["version"]}}


def _source_name(name: str) -> str:
    if not name.isidentifier() or keyword.iskeyword(name) or name == "spark":
        raise ValueError("it becomes the name of an argument of prepare; write an identifier, such as 'orders'")
    return name


class ReadsSources(JobSpec):
    """A job that reads one source, or several with names."""

    source: Annotated[Source | None, Inlined("path")] = None
    """What is read: a path (a name below the storage root, or a URI), or a dict of `format`, `path` and `options`; of
    `table`, such as `{"table": "sales.orders"}`; or of `query`. The result of an export is its dataset."""
    sources: dict[Annotated[str, AfterValidator(_source_name)], Source] = {}
    """Several sources in place of `source`, by the names of the arguments of `prepare` that get them: `{"orders":
    {"table": "sales.orders"}, "customers": "customers.csv"}` for `prepare(spark, orders, customers,
    **prepare_params)`."""

    @model_validator(mode="after")
    def _check_sources(self) -> Self:
        if self.source is None and not self.sources:
            raise PydanticCustomError(NOT_GIVEN, "source is missing; write a path, or several as sources=")
        if self.source is not None and self.sources:
            raise ValueError("source and sources exclude each other; remove one of them")
        return self

    @property
    def all_sources(self) -> dict[str, Source]:
        """The sources by their names; a single one is named `source`."""
        return self.sources if self.source is None else {"source": self.source}

    def references(self) -> Iterator[Reference]:
        """Yield the versions of datasets that the sources are."""
        for source in self.all_sources.values():
            yield from source.references()


Severity = Literal["error", "warn"]
"""Whether what is not as expected fails an export, or is a warning."""


class Expectation(Part):
    """Checks of a column, in each split; `unique` in all splits together."""

    min: float | None = None
    """The smallest value."""
    max: float | None = None
    """The largest value."""
    nulls: Annotated[float, Field(ge=0, le=1)] | None = None
    """The largest fraction of nulls."""
    values: Annotated[tuple[str, ...], BeforeValidator(as_texts)] | None = None
    """The only values."""
    rows_per_value: PositiveInt | None = None
    """The fewest rows of each value: of those in `values`, or else of those that occur."""
    unique: bool = False
    """Whether no two rows have the same value. Rows with a null do not count; NaN is one value."""
    unique_with: Annotated[tuple[Name, ...], refuse_string("day", "hour")] = ()
    """Other columns: no two rows have the same values in this column and all of these."""
    severity: Severity = "error"
    """`error` fails the export, `warn` warns."""

    @property
    def key(self) -> tuple[str, ...] | None:
        """The columns beside this one that identify a row; None if no key is expected."""
        return self.unique_with if self.unique_with or self.unique else None

    @property
    def has_values(self) -> bool:
        """Whether the rows of each value are checked."""
        return self.values is not None or self.rows_per_value is not None

    @property
    def has_statistics(self) -> bool:
        """Whether anything is checked beside the key."""
        return self.has_values or any(limit is not None for limit in (self.min, self.max, self.nulls))

    @model_validator(mode="after")
    def _check_bounds(self) -> Expectation:
        _check_order(self.min, self.max)
        if self.unique and self.unique_with:
            raise ValueError("unique and unique_with exclude each other: what is unique alone is so with other columns")
        return self


class RowCount(Part):
    """The number of rows that an export is expected to write."""

    min: NonNegativeInt | None = None
    """The smallest number."""
    max: NonNegativeInt | None = None
    """The largest number."""
    severity: Severity = "error"
    """`error` fails the export, `warn` warns."""

    @model_validator(mode="after")
    def _check_bounds(self) -> RowCount:
        _check_order(self.min, self.max)
        return self


def _check_order(low: float | None, high: float | None) -> None:
    if low is not None and high is not None and low > high:
        raise ValueError(f"min={low:g} is above max={high:g}")


class Drift(Part):
    """Limits on the population stability index between a column and the same column of the previous version.

    A column that reaches `warn` causes a warning, one that reaches `fail` fails the export.
    """

    warn: PositiveFloat = 0.1
    """The index from which on to warn."""
    fail: PositiveFloat | None = None
    """The index from which on to fail."""
    columns: tuple[str, ...] = ()
    """The columns to compare. By default all but dates and times."""

    @model_validator(mode="after")
    def _check_order(self) -> Drift:
        if self.fail is not None and "warn" in self.model_fields_set and self.fail < self.warn:
            raise ValueError(f"fail={self.fail:g} is below warn={self.warn:g}; write a larger number")
        return self


def refuse_overlap(output: str, fields: Mapping[str, Any], option: str, of_datasets: bool = True) -> None:
    """Raise ValueError if a job would write to what it reads.

    Args:
        output: What it writes.
        fields: The fields of the spec that are valid so far.
        option: The option that names the output.
        of_datasets: Whether that matters for sources that are datasets too, of which only one version is read.
    """
    for source in filter(None, (fields.get("source"), *fields.get("sources", {}).values())):
        if source.path and (of_datasets or source.format != FORMAT) and overlap(output, source.path):
            raise ValueError(f"it is the source {source.path!r}, contains it or lies inside it; write another {option}")


def overlap(output: str, source: str) -> bool:
    """Return whether one of two paths is the other one or lies inside it; the source may be a pattern of paths."""
    scheme, host, path = _divide(output)
    source_scheme, source_host, source_path = _divide(source)
    if scheme != source_scheme or (host and source_host and host != source_host):
        return False
    top = PurePosixPath(*path.parts[: len(source_path.parts)])
    return (
        source_path.is_relative_to(path) or path.is_relative_to(source_path) or fnmatchcase(str(top), str(source_path))
    )


def _divide(location: str) -> tuple[str, str, PurePosixPath]:
    """Return the scheme, the host and the path of a location. A host that is missing is that of the cluster."""
    scheme, separator, rest = location.partition("://")
    if not separator and not location.startswith("/"):
        return "", "", PurePosixPath(location)
    host, _, path = (rest if separator else location).partition("/")
    return scheme if separator else "file", host, PurePosixPath("/", path.lstrip("/"))


def lies_below(output: str, source: str) -> bool:
    """Return whether a path lies inside another one, which may be a pattern of paths, and is not the same."""
    return overlap(output, source) and len(_divide(output)[2].parts) > len(_divide(source)[2].parts)
