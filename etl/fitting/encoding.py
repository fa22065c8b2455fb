"""Replace values of columns by their indices, in the same way in exports, evaluations and predictions.

A column of indices has the checksum of its vocabulary in the metadata of its field, also in a dataset. So indices are
not taken for values, nor those of one vocabulary for those of another.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructField, StructType

from trainyard.errors import TrainyardError
from trainyard.etl.datasource.columns import get_column, raise_error
from trainyard.etl.fitting.vocabulary import find_type
from trainyard.etl.scoring.inputs import VOCABULARY
from trainyard.etl.scoring.scan import DatasetScan, Rows, select
from trainyard.schemas.datasets.fitted_state import UNKNOWN_CLASS, Vocabulary

_VALUE, _INDEX = "__vocabulary_value", "__vocabulary_index"


def encode(
    frame: DataFrame,
    vocabularies: Mapping[str, Vocabulary],
    unseen: Observation | None = None,
    keeps_order: bool = False,
    nullable: Collection[str] = (),
) -> DataFrame:
    """Replace the values of columns by indices of type bigint.

    Each vocabulary is joined as a table that all executors have, so that a lookup takes the same time for any number of
    values. The distinct elements of arrays are looked up in a dict of each task. Rows stay in their partitions.

    Args:
        frame: The rows. A value of a label that is no class is an error of the Spark job.
        vocabularies: The values of the columns.
        unseen: Where to count, by column, the rows with index 0 of a category, or with such an element, while they are
            computed.
        keeps_order: Whether rows stay in the order of `frame`, all of whose columns are computed then.
        nullable: The labels that a row may be without: null stays null.
    """
    if keeps_order and vocabularies:  # Spark removes a sort below a join, unless another operator is between them
        frame = frame.observe(uuid.uuid4().hex, F.count(F.lit(1)).alias("rows"))
    for name, vocabulary in vocabularies.items():
        if vocabulary.is_list:
            frame = _replace(frame, name, _encode_lists(vocabulary)(get_column(name).cast("array<string>")), vocabulary)
        else:
            frame = _encode_column(frame, name, vocabulary, name in nullable)
    categories = {name: vocabulary for name, vocabulary in vocabularies.items() if not vocabulary.is_label}
    if unseen is None or not categories:
        return frame
    return frame.observe(unseen, *(F.count_if(_has_unseen(*item)).alias(item[0]) for item in categories.items()))


def encode_rows(
    rows: Rows,
    vocabularies: Mapping[str, Vocabulary],
    what: str,
    keep: str = "",
    keeps_order: bool = False,
    nullable: Collection[str] = (),
) -> Rows:
    """Replace the values of those columns that are not indices yet.

    Args:
        rows: A DataFrame, or a scan of a dataset.
        vocabularies: The values of the columns, as the model has them. A column that is not in the rows is left out.
        what: What the rows are, for the message: "the rows to predict for".
        keep: The prefix of columns with the values that are replaced. By default there are none.
        keeps_order: See `encode`.
        nullable: See `encode`.

    Raises:
        TrainyardError: A column has values of another type than in training, or indices of another vocabulary.
    """
    fields = {field.name: field for field in rows.schema.fields if field.name in vocabularies}
    raw = {name: vocabularies[name] for name, field in fields.items() if _has_values(field, vocabularies[name], what)}
    if not raw:
        return rows
    frame = select(rows, rows.schema.names) if isinstance(rows, DatasetScan) else rows
    if keep:
        frame = frame.select("*", *(get_column(name).alias(f"{keep}{name}") for name in raw))
    return encode(frame, raw, keeps_order=keeps_order, nullable=nullable)


def select_encoded(schema: StructType, vocabularies: Mapping[str, Vocabulary]) -> dict[str, Vocabulary]:
    """Return those vocabularies whose indices columns have."""
    checksums = {field.name: (field.metadata or {}).get(VOCABULARY) for field in schema.fields}
    return {name: values for name, values in vocabularies.items() if checksums.get(name) == values.sha256}


def _has_values(field: StructField, vocabulary: Vocabulary, what: str) -> bool:
    """Return whether a column has values, and not their indices."""
    checksum = (field.metadata or {}).get(VOCABULARY)
    if checksum == vocabulary.sha256:
        return False
    if checksum is not None:
        raise TrainyardError(
            f"{what} have indices of other values in column {field.name!r} than the model was trained on: their "
            "dataset was fitted anew. Use the dataset that the model was trained on, or rows with the "
            "values themselves; or train the model again."
        )
    if find_type(field.dataType) != vocabulary.type or isinstance(field.dataType, ArrayType) != vocabulary.is_list:
        raise TrainyardError(
            f"{what} have {field.dataType.simpleString()} in column {field.name!r}, but the model was trained on "
            f"categories of type {vocabulary.column_type}; prepare them as for the export."
        )
    return True


def _has_unseen(name: str, vocabulary: Vocabulary) -> Column:
    indices = get_column(name)
    return F.exists(indices, lambda index: index == 0) if vocabulary.is_list else indices == 0


def _encode_column(frame: DataFrame, name: str, vocabulary: Vocabulary, nullable: bool) -> DataFrame:
    size = len(vocabulary.values)
    indices = pa.array(range(vocabulary.first, vocabulary.first + size), pa.int64())
    table = pa.table({_VALUE: pa.array(vocabulary.values, pa.string()), _INDEX: indices})
    values = F.broadcast(frame.sparkSession.createDataFrame(table))
    joined = frame.join(values, get_column(name).cast("string") == F.col(_VALUE), "left")
    other = _refuse(name) if vocabulary.is_label else F.lit(0)
    if nullable:
        other = F.when(get_column(name).isNotNull(), other)
    return _replace(joined, name, F.coalesce(F.col(_INDEX), other.cast("bigint")), vocabulary, frame.columns)


def _replace(
    frame: DataFrame, name: str, index: Column, vocabulary: Vocabulary, columns: Sequence[str] = ()
) -> DataFrame:
    """Return the `columns` of a frame, by default all, with the indices of one."""
    named = index.alias(name, metadata={VOCABULARY: vocabulary.sha256})
    return frame.select(*(named if column == name else get_column(column) for column in columns or frame.columns))


def _encode_lists(vocabulary: Vocabulary) -> Callable[[Column], Column]:
    """Return a function of a column of arrays of texts, to the arrays of their indices."""
    values, first = vocabulary.values, vocabulary.first

    @F.arrow_udf("array<bigint>")  # type: ignore[untyped-decorator, unused-ignore]
    def encode_lists(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        indices = dict(zip(values, range(first, first + len(values)), strict=True))
        for lists in batches:
            yield index_lists(lists, indices)

    return encode_lists  # type: ignore[no-any-return, unused-ignore]


def index_lists(lists: pa.ListArray, indices: Mapping[str, int]) -> pa.ListArray:
    """Return arrays with the indices of their texts, 0 for null and for those without one.

    Each distinct text of the arrays is looked up once.
    """
    texts = lists.flatten().dictionary_encode()
    known = pa.array([indices.get(text, 0) for text in texts.dictionary.to_pylist()], pa.int64())
    found = pc.fill_null(pc.take(known, texts.indices), 0)
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
    return pa.ListArray.from_arrays(offsets, found, mask=lists.is_null())


def _refuse(label: str) -> Column:
    """Return a column that ends the job with the value of a label that is no class."""
    value = F.coalesce(F.concat(F.lit("'"), get_column(label).cast("string"), F.lit("'")), F.lit("None"))
    return raise_error(F.concat(F.lit(f"the label {label!r} has the value "), value, F.lit(UNKNOWN_CLASS)))
