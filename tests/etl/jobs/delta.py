"""Python functions of every kind end over a Delta table.

    make matrix ROWS=sources-delta-4.4.0

Delta needs settings that a session has from its start, and jars that Maven fetches.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stack.hadoop.jars import DELTA, fetch_jars
from tests.etl import python_functions
from trainyard.etl.jobs.exporting import sources
from trainyard.etl.jobs.functions import UserFunction
from trainyard.schemas.specs.source import Source

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300, func_only=True)]

ROWS = 100


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The session of the tests, which reads and writes Delta tables."""
    settings = {
        "spark.jars": ",".join(map(str, sorted(fetch_jars(DELTA).glob("*.jar")))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", shlex.join([*options, "pyspark-shell"]))
        yield request.getfixturevalue("spark")


@pytest.fixture(scope="module")
def table(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Source:
    """A Delta table of the rows (id, x), in two files of which some rows are deleted."""
    path = str(tmp_path_factory.mktemp("delta") / "table")
    frame = session.range(ROWS + 10).select("id", (F.col("id") / 4).alias("x")).repartition(2)
    frame.write.format("delta").save(path)
    session.sql(f"DELETE FROM delta.`{path}` WHERE id >= {ROWS}")
    return Source(format="delta", path=path)


@pytest.mark.parametrize("function", python_functions.KINDS, ids=lambda function: function.__name__)
def test_a_python_function_ends_over_a_delta_table(
    table: Source, session: Any, function: Callable[..., DataFrame]
) -> None:
    prepare = UserFunction.load("prepare", f"tests.etl.python_functions:{function.__name__}")
    prepared = prepare(session, sources.read(session, table), {})
    assert sorted(map(tuple, prepared.collect())) == [(number, number / 4 + 1) for number in range(ROWS)]
