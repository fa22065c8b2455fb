"""Map the columns of a DataFrame to the columns of a dataset: scalars, tensors and lists."""

from __future__ import annotations

import inspect
import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.options import WriteOptions
from trainyard.schemas.datasets.manifest import Column

# Spark 4.1 has no such argument, and uses UTC.
_TIMEZONE: dict[str, Any] = {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
_NUMBERS: dict[type, pa.DataType] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
}
_OTHERS: dict[type, pa.DataType] = {
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
}
_SUPPORTED = (
    "Supported types are boolean, tinyint, smallint, int, bigint, float, double, arrays of these, "
    "string, binary, date and timestamp"
)
_ADVICE: dict[type, str] = {
    spark.StructType: "select its fields as separate columns",
    spark.MapType: "select its entries as separate columns",
    spark.DecimalType: "cast it to double",
    spark.UserDefinedType: "convert an ML vector to an array with pyspark.ml.functions.vector_to_array",
}
_ADVICE_ON_ELEMENTS: dict[type, str] = {
    spark.StringType: (
        "make one text of it with concat_ws(' ', column), or numbers of its texts, for example with "
        "transform(column, lambda text: pmod(hash(text), lit(1000)))"
    ),
    spark.DecimalType: "cast it to array<double>",
}


@dataclass(frozen=True)
class Field:
    """One column of a dataset while it is written.

    Attributes:
        name: The column's name.
        kind: "scalar", "tensor" (same shape in each row) or "list" (variable length).
        element: The Arrow type of one number or value.
        shape: () for a scalar, the shape of one element for a list, the shape of one row for a tensor. A tensor's
            shape is None until the first row was encoded, unless the user declared it.
        has_nulls: Whether a column of numbers may be null: a label that a row does not have.
    """

    name: str
    kind: Literal["scalar", "tensor", "list"]
    element: pa.DataType
    shape: tuple[int, ...] | None
    has_nulls: bool = False

    @property
    def nullable(self) -> bool:
        """Whether rows may be null; numbers, tensors and lists may not, unless the user allows it."""
        return self.has_nulls or not is_number(self.element)

    @property
    def column(self) -> Column:
        """The column's entry in the manifest; requires a known shape."""
        assert self.shape is not None
        kind = str(self.element)
        return Column(name=self.name, kind=self.kind, type=kind, shape=self.shape, nullable=self.has_nulls)

    @property
    def storage(self) -> pa.DataType:
        """The Arrow type of the column's plain storage, without the tensor's extension type."""
        if self.kind == "scalar":
            return self.element
        if self.kind == "list":
            return pa.list_(self.element)
        assert self.shape is not None
        return pa.list_(self.element, math.prod(self.shape))

    @property
    def arrow(self) -> pa.Field:
        """The column's field in the Arrow schema of a shard."""
        kind = pa.fixed_shape_tensor(self.element, self.shape) if self.kind == "tensor" else self.storage
        return pa.field(self.name, kind, nullable=self.nullable)


def is_number(element: pa.DataType) -> bool:
    """Return whether values of this type have a mean; booleans count as 0 and 1."""
    return bool(pa.types.is_integer(element) or pa.types.is_floating(element) or pa.types.is_boolean(element))


def to_arrow(schema: spark.StructType) -> pa.Schema:
    """Return the Arrow schema of a DataFrame, with timestamps in UTC."""
    return to_arrow_schema(schema, **_TIMEZONE)


def read_schema(text: str) -> spark.StructType:
    """Return the schema of a dataset's rows from the JSON in its manifest, which is that of one write.

    Every column may have nulls, as in files that Spark reads: other partitions can have some where that write has none.
    """
    written = spark.StructType.fromJson(json.loads(text))
    return spark.StructType([spark.StructField(f.name, f.dataType, True, f.metadata) for f in written.fields])


def build_fields(
    schema: spark.StructType, options: WriteOptions, variable_length_option: str = "variableLength"
) -> tuple[Field, ...]:
    """Return the columns to write, in the order of `schema`.

    Args:
        schema: The schema of the DataFrame.
        options: The options of the write.
        variable_length_option: The name of the option for variable-length columns as the user wrote it, for errors.

    Raises:
        TrainyardError: A column is missing, has an unsupported type, or has the name of another, whatever its case.
    """
    _check_names(schema, options, variable_length_option)
    shapes = dict(options.shapes)
    return tuple(
        _allow_nulls(field) if field.name in options.nullable else field
        for field in (
            _build_field(
                column, shapes.get(column.name), column.name in options.variable_length, variable_length_option
            )
            for column in schema.fields
            if column.name != options.split_column
        )
    )


def _allow_nulls(field: Field) -> Field:
    """Return a column of numbers that may be null."""
    if field.kind != "scalar" or not is_number(field.element) or pa.types.is_boolean(field.element):
        raise TrainyardError(
            f"nullable names the column {field.name!r}, which is no column of single numbers; only these have labels "
            "that a row may be without. Remove it, or cast a boolean to tinyint."
        )
    return replace(field, has_nulls=True)


def quote(name: str) -> str:
    """Return the name of a column as Spark's SQL has it, which may contain any character."""
    return f"`{name.replace('`', '``')}`"


def get_column(name: str) -> SparkColumn:
    """Return the column of this name, which may contain any character."""
    return F.col(quote(name))


def raise_error(message: SparkColumn) -> SparkColumn:
    """Return a column that ends the job with a TrainyardError, as `errors.reason` reads it from Spark's error.

    Its own text has no newline: Spark prints plans within records of its log, and only lines that begin a record are
    known to be of one.
    """
    return F.raise_error(F.concat(F.lit("TrainyardError: "), message))


def missing_column_error(name: str | None, option: str, names: list[str]) -> TrainyardError:
    """Return the error for an `option` that names a column which is not among `names`."""
    return TrainyardError(f"{option} names the column {name!r}, which does not exist; columns are {', '.join(names)}.")


def _check_names(schema: spark.StructType, options: WriteOptions, variable_length_option: str) -> None:
    names = schema.fieldNames()
    seen: dict[str, str] = {}
    for name, count in Counter(names).items():
        if count > 1:
            raise TrainyardError(f"{count} columns are named {name!r}; give each its own name.")
        if (other := seen.setdefault(name.lower(), name)) != name:
            raise TrainyardError(
                f"the columns {other!r} and {name!r} differ in case only, which Spark does not distinguish; rename one."
            )
    references = [("shapes", name) for name, _ in options.shapes]
    references += [(variable_length_option, name) for name in options.variable_length]
    references += [("nullable", name) for name in options.nullable]
    references += [("splitColumn", options.split_column)] if options.split_column else []
    for option, name in references:
        if name not in names:
            raise missing_column_error(name, option, names)
    if options.split_column and not isinstance(schema[options.split_column].dataType, spark.StringType):
        kind = schema[options.split_column].dataType.simpleString()
        raise TrainyardError(f"the split column {options.split_column!r} has type {kind}; cast it to string.")


def _build_field(
    column: spark.StructField, shape: tuple[int, ...] | None, variable_length: bool, variable_length_option: str
) -> Field:
    kind = column.dataType
    if isinstance(kind, spark.ArrayType) and type(kind.elementType) in _NUMBERS:
        element = _NUMBERS[type(kind.elementType)]
        if variable_length:
            return Field(column.name, "list", element, shape or ())
        return Field(column.name, "tensor", element, shape)
    scalar = (_NUMBERS | _OTHERS).get(type(kind))
    if scalar is None:
        raise _unsupported_type_error(column.name, kind)
    if shape or variable_length:
        option = "shapes" if shape else variable_length_option
        raise TrainyardError(
            f"{option} names the column {column.name!r} of type {kind.simpleString()}; it applies to arrays only."
        )
    return Field(column.name, "scalar", scalar, ())


def _unsupported_type_error(name: str, kind: spark.DataType) -> TrainyardError:
    return TrainyardError(
        f"column {name!r} has type {kind.simpleString()}, which a dataset cannot store. {_SUPPORTED}: {_advise(kind)}."
    )


def _advise(kind: spark.DataType) -> str:
    """Return what makes a type that a dataset cannot store one that it can."""
    if isinstance(kind, spark.ArrayType):
        element = kind.elementType
        if isinstance(element, spark.ArrayType):
            inner = "set its shape in `shapes`" if type(element.elementType) in _NUMBERS else _advise(element)
            return f"flatten() it and {inner}"
        return _ADVICE_ON_ELEMENTS.get(type(element), "make numbers of its elements with transform()")
    if isinstance(kind, spark.DecimalType) and kind.scale == 0:
        return "cast it to bigint, or to string if it has more than 18 digits: double has 15"
    return next((text for type_, text in _ADVICE.items() if isinstance(kind, type_)), "cast it to one of them")
