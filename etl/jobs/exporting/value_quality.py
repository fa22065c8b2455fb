"""Check the values of columns that become indices, before they do."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructField

from trainyard.etl.datasource.columns import get_column
from trainyard.etl.datasource.writing.quality import find_violations, raise_errors
from trainyard.etl.datasource.writing.statistics import MAX_VALUES
from trainyard.etl.fitting.vocabulary import find_type
from trainyard.schemas.datasets.manifest import Statistics
from trainyard.schemas.specs.source import Expectation


def check_values(dataset: str, rows: DataFrame, split: str, expected: Mapping[str, Expectation]) -> tuple[str, ...]:
    """Return a warning for each violation, in each split, whose severity is `warn`.

    All columns together take one pass over them, and a shuffle of the counts of their values.

    Args:
        dataset: The URI of the dataset, for messages.
        rows: The rows with the values.
        split: The column with the names of the splits.
        expected: The expectation for each column of values that become indices.

    Raises:
        TrainyardError: An expectation of severity `error` is violated.
    """
    checked = {name: expectation for name, expectation in expected.items() if expectation.has_statistics}
    if not checked:
        return ()
    types = {name: str(find_type(rows.schema[name].dataType)) for name in checked}
    counted = count_values(rows, split, checked, [name for name, one in checked.items() if one.has_values])
    return raise_errors(
        dataset, [one for name, columns in counted.items() for one in find_violations(name, columns, checked, types)]
    )


def count_values(
    rows: DataFrame, split: str, names: Collection[str], counted: Collection[str]
) -> dict[str, dict[str, Statistics]]:
    """Return the statistics of columns by split and column: their nulls, the extremes of integers, and values.

    Args:
        rows: The rows.
        split: The column with the names of the splits.
        names: The columns, of types that can become indices. Of arrays only nulls are counted.
        counted: Those of them whose values are counted.
    """
    structs = F.array(*(_describe(rows.schema[name], number, name in counted) for number, name in enumerate(names)))
    described = rows.select(get_column(split).alias("split"), F.explode(structs).alias("one")).select("split", "one.*")
    counts = described.groupBy("split", "column", "value").agg(
        F.count(F.lit(1)).alias("rows"), F.min("number").alias("min"), F.max("number").alias("max")
    )
    of_column = Window.partitionBy("split", "column")
    ranked = counts.select(
        "split", "column", "value", "rows",
        F.sum(F.when(F.col("value").isNull(), F.col("rows")).otherwise(0)).over(of_column).alias("nulls"),
        F.sum("rows").over(of_column).alias("total"),
        F.count("value").over(of_column).alias("distinct"),
        F.min("min").over(of_column).alias("min"), F.max("max").over(of_column).alias("max"),
        F.row_number().over(of_column.orderBy(F.desc("rows"), "value")).alias("rank"),
    )  # fmt: skip
    found = ranked.where(F.col("rank") <= MAX_VALUES + 1).orderBy("split", "column", "rank").collect()
    columns = list(names)
    statistics: dict[str, dict[str, Statistics]] = {}
    for row in found:
        name = columns[row.column]
        has_values = name in counted and row.distinct <= MAX_VALUES and not _is_list(rows.schema[name])
        one = statistics.setdefault(str(row.split), {}).setdefault(
            name,
            Statistics(
                count=row.total - row.nulls, nulls=row.nulls, values={} if has_values else None,
                min=() if row.min is None else (row.min,), max=() if row.max is None else (row.max,),
            ),
        )  # fmt: skip
        if one.values is not None and row.value is not None:
            one.values[row.value] = row.rows
    return statistics


def _describe(field: StructField, number: int, has_values: bool) -> Column:
    """Return the value of a row as text, null for null, with the number of its column, and itself if it is a number."""
    column = get_column(field.name)
    is_number = find_type(field.dataType) == "integer" and not _is_list(field)
    value = column.cast("string") if has_values and not _is_list(field) else F.when(column.isNotNull(), F.lit(""))
    return F.struct(
        F.lit(number).alias("column"), value.alias("value"),
        (column if is_number else F.lit(None)).cast("double").alias("number"),
    )  # fmt: skip


def _is_list(field: StructField) -> bool:
    return isinstance(field.dataType, ArrayType)
