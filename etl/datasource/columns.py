"""What each column of a DataFrame becomes in a dataset: a scalar, a tensor or a list."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import types as spark

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.options import WriteOptions
from trainyard.schemas.manifest import Column

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
    "Supported are boolean, tinyint, smallint, int, bigint, float, double, arrays of these, "
    "string, binary, date and timestamp"
)
_ADVICE: dict[type, str] = {
    spark.StructType: "select its fields as columns of their own",
    spark.MapType: "select the entries as columns of their own",
    spark.DecimalType: "cast it to double",
    spark.ArrayType: "flatten() it and give its shape in 'shapes'",
    spark.UserDefinedType: "turn an ML vector into an array by pyspark.ml.functions.vector_to_array",
}


@dataclass(frozen=True)
class Field:
    """One column as it is written. `element` is the Arrow type of one number or value.

    `shape` is () for a scalar, and that of one element for a list; for a tensor None until the first row tells it.
    """

    name: str
    kind: Literal["scalar", "tensor", "list"]
    element: pa.DataType
    shape: tuple[int, ...] | None

    @property
    def nullable(self) -> bool:
        return not is_number(self.element)

    @property
    def column(self) -> Column:
        """This column as the manifest tells it; the shape must be known."""
        assert self.shape is not None
        return Column(name=self.name, kind=self.kind, type=str(self.element), shape=self.shape)

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
        """The column in a shard's schema."""
        kind = pa.fixed_shape_tensor(self.element, self.shape) if self.kind == "tensor" else self.storage
        return pa.field(self.name, kind, nullable=self.nullable)


def is_number(element: pa.DataType) -> bool:
    """Whether values of this type have a mean; booleans count as 0 and 1."""
    return bool(pa.types.is_integer(element) or pa.types.is_floating(element) or pa.types.is_boolean(element))


def fields(schema: spark.StructType, options: WriteOptions) -> tuple[Field, ...]:
    """The columns to write, in the order of `schema`.

    Raises TrainyardError for a column that is missing, named twice or of a type that has no place in a batch.
    """
    data = [column for column in schema.fields if column.name != options.split_column]
    _check_names(schema, options)
    shapes = dict(options.shapes)
    return tuple(_field(column, shapes.get(column.name), column.name in options.variable_length) for column in data)


def _check_names(schema: spark.StructType, options: WriteOptions) -> None:
    names = schema.fieldNames()
    for name in names:
        if names.count(name) > 1:
            raise TrainyardError(f"there are {names.count(name)} columns named {name!r}; give each a name of its own.")
    asked = [("shapes", name) for name, _ in options.shapes] + [
        ("variableLength", name) for name in options.variable_length
    ]
    asked += [("splitColumn", options.split_column)] if options.split_column else []
    for option, name in asked:
        if name not in names:
            raise missing(name, option, names)
    if options.split_column and not isinstance(schema[options.split_column].dataType, spark.StringType):
        found = schema[options.split_column].dataType.simpleString()
        raise TrainyardError(f"the split column {options.split_column!r} is of type {found}; it must be a string.")


def missing(name: str | None, option: str, names: list[str]) -> TrainyardError:
    """The error for an option that names a column which is not there."""
    return TrainyardError(f"{option} names the column {name!r}, which is not there; there are {', '.join(names)}.")


def _field(column: spark.StructField, shape: tuple[int, ...] | None, varies: bool) -> Field:
    found = column.dataType
    if isinstance(found, spark.ArrayType) and type(found.elementType) in _NUMBERS:
        element = _NUMBERS[type(found.elementType)]
        return Field(column.name, "list" if varies else "tensor", element, shape or () if varies else shape)
    element = (_NUMBERS | _OTHERS).get(type(found))
    if element is None:
        raise _unsupported(column.name, found)
    if shape or varies:
        option = "shapes" if shape else "variableLength"
        raise TrainyardError(f"{option} names the column {column.name!r}, which is a {found.simpleString()}, no array.")
    return Field(column.name, "scalar", element, ())


def _unsupported(name: str, found: Any) -> TrainyardError:
    advice = next((text for kind, text in _ADVICE.items() if isinstance(found, kind)), "cast it to one of them")
    return TrainyardError(
        f"column {name!r} is of type {found.simpleString()}, which has no place in a batch. {_SUPPORTED}: {advice}."
    )
