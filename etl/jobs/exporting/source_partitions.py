"""The partitions of a source by the values of one column, and the files of each, found by the names of folders.

Spark names the folder of a partition `COLUMN=VALUE`, with some characters escaped, and converts the value to the type
of the column when it reads: `month=01` has the value 1.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import defaultdict
from collections.abc import Iterable
from urllib.parse import unquote

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType

_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"""[\x01-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
"""The characters that Spark escapes in the name of a folder."""

SourceFile = tuple[str, int, str]
"""The path of a file, its bytes and its change time."""


def name_partition(column: Column) -> Column:
    """Return the name of each row's partition; as in Spark, null and the empty string have the same."""
    return F.coalesce(F.nullif(column.cast("string"), F.lit("")), F.lit(_NULL))


def normalize_zero(column: Column, data_type: DataType) -> Column:
    """Return a column in which -0.0 is 0.0: Spark writes both as one partition, which has one name."""
    return column + F.lit(0.0).cast(data_type) if isinstance(data_type, FloatType | DoubleType) else column


def folder_prefix(column: str) -> str:
    """Return how the names of a column's folders begin."""
    return f"{_escape(column)}="


def name_folder(column: str, partition: str) -> str:
    """Return the name of a partition's folder as Spark writes it."""
    return folder_prefix(column) + _escape(partition)


def read_folder(column: str, folder: str) -> str:
    """Return the text after the prefix of a folder's name as Spark reads it: an escape is one character, not a byte."""
    return unquote(folder.removeprefix(folder_prefix(column)), encoding="latin-1")


def hash_files(
    spark: SparkSession, files: list[SourceFile] | None, column: str, data_type: DataType
) -> tuple[dict[str, str], str]:
    """Hash the names, sizes and change times of a source's files, by the partition of their folder at any depth.

    Args:
        spark: The session.
        files: The files; none for a source without files, and None if its storage has no change times.
        column: The column with the partitions.
        data_type: The type of the column.

    Returns:
        The hash of each partition that has folders, and the hash of any other partition: that of all files. It is the
        same each time for a source without files, and another one each time if its storage has no change times.
    """
    if files is None:
        return {}, uuid.uuid4().hex
    by_text: dict[str, list[SourceFile]] = defaultdict(list)
    for file in files:
        for folder in file[0].split("/")[:-1]:
            if folder.startswith(folder_prefix(column)):
                by_text[read_folder(column, folder)].append(file)
    texts = spark.createDataFrame([(text,) for text in by_text], "text string")
    value = normalize_zero(F.col("text").try_cast(data_type), data_type)
    by_partition: dict[str, list[SourceFile]] = defaultdict(list)
    for text, partition in texts.select("text", name_partition(value)).collect():
        by_partition[partition] += by_text[text]
    return {partition: _hash(of) for partition, of in by_partition.items()}, _hash(files)


def _hash(files: Iterable[SourceFile]) -> str:
    return hashlib.sha256(json.dumps(sorted(files)).encode()).hexdigest()


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)
