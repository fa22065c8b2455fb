"""Find what Spark leaves out of the files of a source without an error: hidden files, and columns of some files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from pyspark.sql import DataFrame, SparkSession

from trainyard.errors import summarize
from trainyard.schemas.specs.source import Source

MAX_FILES = 100
"""The files, and the folders of these, that are looked at: a source of 10,000 files costs no more."""
MAX_NAMED = 5
_OF_FIRST_FILE = ("orc", "parquet")
"""Formats whose columns are those of one file."""
_FORMATS = ("avro", "binaryfile", "csv", "image", "json", *_OF_FIRST_FILE, "text", "xml")
_HIDDEN = "{_,.}*"
_MARKERS = re.compile(
    r"""_(SUCCESS|metadata|common_metadata|temporary|delta_|spark_metadata|change_data|symlink_format_manifest|started_
    |committed_|logs$)|[^=]*=|\.(_|DS_Store|git|hive-staging|hoodie|ipynb_checkpoints|keep|nfs|sdc|snapshot|spark-
    |staging|Trash|trainyard)|.*(\._COPYING_|\.crc|\.inprogress.*|\.pending.*|\.swp|\.tmp|~)$""",
    re.VERBOSE,
)
"""Names of files and folders that are hidden on purpose, and of `_column=value`, which Spark reads."""


def find_left_out(spark: SparkSession, source: Source, frame: DataFrame) -> list[str]:
    """Return what Spark leaves out of the files of a source, each as a text of one or two sentences.

    At most `MAX_FILES` files are compared, by one Spark job that reads their footers, and their folders listed.

    Args:
        spark: The session.
        source: The source.
        frame: The source as it was read.
    """
    if source.format.lower() not in _FORMATS or source.path is None:
        return []
    try:
        files = frame._jdf.inputFiles()
        total = len(files)
        uri = spark._jvm.java.net.URI
        numbers = sorted({number * (total - 1) // (MAX_FILES - 1) for number in range(MAX_FILES)} if total else ())
        paths = [spark._jvm.org.apache.hadoop.fs.Path(uri(files[number])) for number in numbers]
        hidden = describe_hidden(spark, source, [path.getParent().toString() for path in paths])
        others = source.format.lower() in _OF_FIRST_FILE and total > 1
        columns = _compare_columns(spark, source, frame, [path.toString() for path in paths], total) if others else ""
    except Exception as error:  # py4j raises errors of several types, as for a folder that may not be listed
        print(f"The files of the source are not compared: {summarize(error)}", flush=True)
        return []
    return [text for text in (hidden, columns) if text]


def describe_hidden(spark: SparkSession, source: Source, folders: Iterable[str] = ()) -> str:
    """Return how many files and folders of a source are hidden from Spark, and the name of one; "" if none are.

    Args:
        spark: The session.
        source: The source.
        folders: Folders of files of the source. What is beside a file that its path names is no part of it.
    """
    hadoop, conf = spark._jvm.org.apache.hadoop.fs, spark._jsparkSession.sessionState().newHadoopConf()
    is_hidden, top = hadoop.GlobFilter(_HIDDEN), hadoop.Path(source.path)
    of_path = list(top.getFileSystem(conf).globStatus(top) or ())
    found = [status for status in of_path if status.isFile() and is_hidden.accept(status.getPath())]
    of_path = [status.getPath().toString() for status in of_path[:MAX_FILES] if status.isDirectory()]
    inside = [folder for folder in folders if any(f"{folder}/".startswith(f"{path}/") for path in of_path)]
    for folder in map(hadoop.Path, dict.fromkeys([*of_path, *inside])):
        found += folder.getFileSystem(conf).listStatus(folder, is_hidden)
    names = sorted(status.getPath().getName() for status in found)
    selected = source.options.get("pathGlobFilter", "*")
    names = [name for name in names if not _MARKERS.match(name) and fnmatchcase(name, selected)]
    if not names:
        return ""
    return (
        f"Spark does not read {len(names):,} files or folders, for example {names[0]!r}, because names that begin with "
        "'_' or '.' are hidden from it. Rename them if they have rows."
    )


def _compare_columns(spark: SparkSession, source: Source, frame: DataFrame, paths: list[str], total: int) -> str:
    """Return which columns some files have, and the one does not whose columns Spark takes; "" if there are none."""
    reader = spark.read.format(source.format).options(**source.options)
    merged = reader.option("mergeSchema", "true").option("__globPaths__", "false").load(paths)
    known = {name.lower() for name in frame.columns}
    missing = [name for name in merged.columns if name.lower() not in known]
    if not missing:
        return ""
    more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
    return (
        f"Spark takes the columns of one file, and does not read {', '.join(map(repr, missing[:MAX_NAMED]))}{more} of "
        f"others ({len(paths):,} of {total:,} files were compared). To read them, write the option mergeSchema='true' "
        "of source=; they are null in rows of files without them."
    )
