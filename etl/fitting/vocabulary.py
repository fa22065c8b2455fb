"""Find the values of columns that become indices, in one pass over the training rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as spark

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import get_column, missing_column_error
from trainyard.schemas.datasets.fitted_state import Vocabulary
from trainyard.schemas.specs.categories import MAX_VALUES, Category

MAX_CLASSES = 10_000
"""The most classes of a label: the network has an output for each."""
MAX_BYTES = 16 << 20
"""The most bytes of the values of a column."""

_TYPES: dict[type, Literal["string", "integer", "boolean"]] = {
    spark.StringType: "string",
    spark.VarcharType: "string",
    spark.CharType: "string",
    spark.ByteType: "integer",
    spark.ShortType: "integer",
    spark.IntegerType: "integer",
    spark.LongType: "integer",
    spark.BooleanType: "boolean",
}


def find_type(kind: spark.DataType) -> Literal["string", "integer", "boolean"] | None:
    """Return the type of values, or of the elements of arrays, that can become indices, None for other types."""
    return _TYPES.get(type(kind.elementType if isinstance(kind, spark.ArrayType) else kind))


def index_schema(schema: spark.StructType, names: Collection[str]) -> spark.StructType:
    """Return the schema of rows whose values in some columns are indices."""
    fields = []
    for field in schema.fields:
        kind = field.dataType
        if field.name in names and find_type(kind):
            kind = spark.ArrayType(spark.LongType()) if isinstance(kind, spark.ArrayType) else spark.LongType()
        fields.append(spark.StructField(field.name, kind, field.nullable, field.metadata))
    return spark.StructType(fields)


def check_columns(schema: spark.StructType, categories: Mapping[str, Category], labels: Collection[str]) -> None:
    """Check that columns exist and have values that can become indices.

    Raises:
        TrainyardError: One has not.
    """
    options = [("categories", name) for name in categories] + [("label", name) for name in labels]
    for option, name in options:
        if name not in schema.names:
            raise missing_column_error(name, option, schema.names)
        is_list = isinstance(schema[name].dataType, spark.ArrayType)
        if find_type(schema[name].dataType) is None or (is_list and option == "label"):
            kind = schema[name].dataType.simpleString()
            allowed, more = (
                "strings, integers, booleans and arrays of them",
                ("Numbers that are measured are no categories: remove it, or make ranges of it in prepare."),
            )
            if option == "label":
                allowed = "strings, integers and booleans"
                more = "A label of numbers is a number: remove label= here, the recipe names it."
            raise TrainyardError(
                f"{option} names the column {name!r} of type {kind}, and values of {allowed} become indices; cast it "
                f"to string in prepare, if each of its values is a name. {more}"
            )


def find_vocabularies(
    rows: DataFrame, categories: Mapping[str, Category], labels: Collection[str]
) -> dict[str, Vocabulary]:
    """Return the vocabulary of each column.

    Args:
        rows: The training rows.
        categories: The columns of categories, and which of their values count.
        labels: The columns of labels.

    Raises:
        TrainyardError: A column has too many values, or a label has none.
    """
    chosen = {**categories, **dict.fromkeys(labels, Category())}
    limits = {
        name: MAX_CLASSES if name in labels else category.max_size or MAX_VALUES for name, category in chosen.items()
    }
    found = _count_values(rows, {name: (category.min_count, limits[name]) for name, category in chosen.items()})
    vocabularies = {}
    for number, (name, category) in enumerate(chosen.items()):
        counted = found.filter(pc.equal(found["column"], number))
        total = counted["total"][0].as_py() if counted.num_rows else 0
        values = counted["value"].slice(0, limits[name])
        _check_size(name, total, values, category, name in labels)
        kind = find_type(rows.schema[name].dataType)
        assert kind
        texts = values.to_pylist()
        if name in labels:
            texts.sort(key=_SORTS[kind])
        is_list = isinstance(rows.schema[name].dataType, spark.ArrayType)
        vocabularies[name] = Vocabulary(type=kind, values=tuple(texts), is_label=name in labels, is_list=is_list)
    return vocabularies


_SORTS: dict[str, Callable[[str], Any]] = {"string": str, "integer": int, "boolean": str}


def _count_values(rows: DataFrame, limits: Mapping[str, tuple[int, int]]) -> pa.Table:
    """Return the most frequent values of columns, one more than each needs, in the order of their indices.

    Args:
        rows: The rows.
        limits: The smallest count of a value, and how many values a column has at most, by column.

    Returns:
        The number of the column, the value, and how many values that are frequent enough the column has.
    """
    pairs = F.concat(*(_pair(rows.schema[name], number) for number, name in enumerate(limits)))
    min_counts, sizes = (
        F.element_at(F.array(*map(F.lit, numbers)), F.col("column") + 1)
        for numbers in zip(*limits.values(), strict=True)
    )
    of_column = Window.partitionBy("column")
    counts = (
        rows.select(F.explode(pairs).alias("pair")).select("pair.*").where("value is not null")
        .groupBy("column", "value").agg(F.count(F.lit(1)).alias("count")).where(F.col("count") >= min_counts)
    )  # fmt: skip
    ranked = counts.select(
        "column", "value",
        F.row_number().over(of_column.orderBy(F.desc("count"), "value")).alias("rank"),
        F.count(F.lit(1)).over(of_column).alias("total"),
    )  # fmt: skip
    table = ranked.where(F.col("rank") <= sizes).toArrow()
    return table.sort_by([("column", "ascending"), ("rank", "ascending")])


def _pair(field: spark.StructField, number: int) -> Column:
    """Return the values of a row, each with the number of its column."""
    column = get_column(field.name)
    if not isinstance(field.dataType, spark.ArrayType):
        column = F.array(column)
    values = F.coalesce(column.cast("array<string>"), F.array().cast("array<string>"))
    return F.transform(values, lambda value: F.struct(F.lit(number).alias("column"), value.alias("value")))


def _check_size(name: str, total: int, values: pa.ChunkedArray, category: Category, is_label: bool) -> None:
    if not total:
        few = f" that {category.min_count} rows have" if category.min_count > 1 else ""
        raise TrainyardError(
            f"column {name!r} has no values{few} in the split 'train', on which it is fitted. Export training rows "
            "first, or correct prepare."
        )
    limit = MAX_CLASSES if is_label else MAX_VALUES
    if total > limit and (is_label or category.max_size is None):
        remedy = (
            "Name a column of classes, or remove label=, if it is a number."
            if is_label
            else f"Keep the most frequent ones, for example with categories={{{name!r}: {{'max_size': 100_000}}}}, or "
            f"those of several rows, with {{'min_count': 5}}."
        )
        what = "a label" if is_label else "a column of categories"
        raise TrainyardError(
            f"column {name!r} has {total:,} values in the split 'train', and {what} has {limit:,} at most. {remedy}"
        )
    size = pc.sum(pc.binary_length(values)).as_py() or 0
    if size > MAX_BYTES:
        raise TrainyardError(
            f"the {len(values):,} values of column {name!r} have {size >> 20} MiB, and those of a column have "
            f"{MAX_BYTES >> 20} MiB at most. Keep fewer with categories={{{name!r}: {{'max_size': 10_000}}}}, or "
            "shorten them in prepare."
        )
