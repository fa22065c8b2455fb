"""Check that rows have the columns that a model takes. It needs the model's artifact, and not torch."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import types as spark

from trainyard.errors import TrainyardError
from trainyard.schemas.datasets.manifest import Column
from trainyard.schemas.model_artifact import ModelArtifact

VOCABULARY = "trainyard.vocabulary"
"""The key in the metadata of a field of indices, whose value is the checksum of the vocabulary."""
_FLOATS = ("float", "double", "halffloat")
_INTEGERS = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType, spark.BooleanType)
_NUMBERS = (*_INTEGERS, spark.FloatType, spark.DoubleType)


def check_inputs(
    schema: spark.StructType,
    artifact: ModelArtifact,
    rows: str,
    required: Sequence[str] = (),
    label: Column | None = None,
) -> None:
    """Check that a DataFrame has the columns that a model takes.

    Args:
        schema: The schema of the DataFrame.
        artifact: The model.
        rows: What the DataFrame is, for the message: "the rows to predict for".
        required: Further columns that it must have, of any type.
        label: The label, if it must have it too. It may have numbers of any type: `to_array` checks its values.

    Raises:
        TrainyardError: Columns are missing or have another type or shape; the message names all of them.
    """
    types = {field.name: field.dataType for field in schema.fields}
    encoded = {field.name for field in schema.fields if VOCABULARY in (field.metadata or {})}
    columns = [*artifact.inputs, *([label] if label else [])]
    names = dict.fromkeys([*(column.name for column in columns), *required])
    problems = [f"have no column {name!r}" for name in names if name not in types]
    for column in columns:
        if column.name in types and not _is_compatible(types[column.name], column, column is label):
            shape = f" of shape {list(column.shape)}" if column.shape else ""
            variable = "variable-length rows of " if column.kind == "list" else ""
            problems.append(
                f"have {types[column.name].simpleString()} in column {column.name!r}, but the model was trained on "
                f"{variable}{column.type}{shape}"
            )
    fitted = artifact.fitted.sizes if artifact.fitted else {}
    raw = [column.name for column in columns if column.name in encoded and column.name not in fitted]
    if raw:
        raise TrainyardError(
            f"{rows} have indices of categories or classes in column {raw[0]!r}, and the model {artifact.recipe!r} was "
            "trained on the values themselves, before the export had categories= or label=. Train the model again, or "
            "use rows with the values."
        )
    if problems:
        raise TrainyardError(
            f"{rows} {'; they '.join(problems)}. Their columns are {', '.join(types)}: prepare them as for the export."
        )


def list_others(schema: spark.StructType, artifact: ModelArtifact) -> list[str]:
    """Return the columns of a DataFrame that a model does not take."""
    taken = {column.name for column in artifact.inputs}
    return [name for name in schema.names if name not in taken]


def _is_compatible(kind: spark.DataType, column: Column, is_label: bool) -> bool:
    """Return whether a Spark type converts to a model's input or label: integers convert to any number."""
    if isinstance(kind, spark.BinaryType):
        return column.kind == "tensor" and not is_label  # bytes are decoded to a tensor
    depth = 0
    while isinstance(kind, spark.ArrayType):
        kind, depth = kind.elementType, depth + 1
    if depth != 1 if column.kind == "list" else bool(depth) != bool(column.shape):
        return False
    if is_label or column.type in _FLOATS:
        return isinstance(kind, _NUMBERS)
    if column.type == "bool" or "int" in column.type:
        return isinstance(kind, _INTEGERS)
    return True
