"""Python functions of every kind end over a Delta table, and an export reads one version of it.

    make matrix ROWS=sources-delta-4.4.0

Delta needs settings that a session has from its start, and jars that Maven fetches.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from stack.hadoop.jars import DELTA
from tests.etl import python_functions
from tests.etl.jobs.lakehouse import COMPARED, export, read_ids, use_session
from trainyard.errors import TrainyardError
from trainyard.etl.jobs.exporting import sources
from trainyard.etl.jobs.functions import UserFunction
from trainyard.schemas.datasets import manifest
from trainyard.schemas.specs.source import Source

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300, func_only=True)]

ROWS = 100


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The session of the tests, which reads and writes Delta tables."""
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    with use_session(request, DELTA, settings) as session:
        yield session


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


@pytest.fixture
def orders(session: Any, tmp_path: Path) -> Iterator[str]:
    """A table of the catalog with 40 rows in version 0, 60 in version 1, and 60 with other values in version 2."""
    session.sql(
        f"CREATE TABLE orders USING delta LOCATION '{tmp_path}/orders' AS SELECT id, id / 4 AS x FROM range(40)"
    )
    session.sql("INSERT INTO orders SELECT id, id / 4 FROM range(40, 60)")
    session.sql("UPDATE orders SET x = -x")
    yield "orders"
    session.sql("DROP TABLE orders")


def test_an_export_records_the_version_that_it_has_read(session: Any, orders: str, tmp_path: Path) -> None:
    result = export(session, tmp_path, {"table": orders})
    provenance = manifest.read_current(str(tmp_path / "dataset")).provenance
    assert (result.rows, result.source_versions, provenance.source_versions) == (60, {"source": "2"}, {"source": "2"})
    assert provenance.source == "table orders@2"


def test_an_export_is_repeated_after_the_table_has_moved_on(session: Any, orders: str, tmp_path: Path) -> None:
    first = export(session, tmp_path, {"table": f"{orders}@0"})
    session.sql(f"DELETE FROM {orders} WHERE id < 30")
    session.sql(f"OPTIMIZE {orders}")
    again = export(session, tmp_path / "again", {"table": f"{orders}@0"})
    assert (again.rows, again.content_hash) == (40, first.content_hash)
    path = {"format": "delta", "path": str(tmp_path / "orders"), "options": {"versionAsOf": 0}}
    assert export(session, tmp_path / "path", path).content_hash == first.content_hash


def test_what_is_written_during_an_export_is_not_read(session: Any, orders: str, tmp_path: Path) -> None:
    """`fit` reads the table, changes it, and the export reads it after that."""
    result = export(
        session, tmp_path, {"table": orders}, fit="tests.etl.prepares:delete_rows", split_by="id",
        fit_params={"table": orders},
    )  # fmt: skip
    assert session.table(orders).count() == 0
    assert (result.rows, result.source_versions) == (60, {"source": "2"})


def test_an_export_of_an_unchanged_table_writes_nothing(session: Any, orders: str, tmp_path: Path) -> None:
    assert not export(session, tmp_path, {"table": orders}, **COMPARED).reused
    again = export(session, tmp_path, {"table": orders}, **COMPARED)
    assert (again.reused, again.version, again.rows) == (True, 1, 60)
    session.sql(f"INSERT INTO {orders} VALUES (60, 15)")
    changed = export(session, tmp_path, {"table": orders}, **COMPARED)
    assert (changed.reused, changed.version, changed.rows) == (False, 2, 61)


def test_a_table_that_is_created_anew_is_another_one(session: Any, orders: str, tmp_path: Path) -> None:
    """Its versions begin with 0 again."""
    export(session, tmp_path, {"table": f"{orders}@0"}, **COMPARED)
    session.sql(f"DROP TABLE {orders}")
    shutil.rmtree(tmp_path / "orders")
    session.sql(f"CREATE TABLE {orders} USING delta LOCATION '{tmp_path}/orders' AS SELECT 7L AS id, 2D AS x")
    assert not export(session, tmp_path, {"table": orders}, **COMPARED).reused


def test_a_table_by_its_path_is_not_exported_again_either(session: Any, orders: str, tmp_path: Path) -> None:
    path = {"format": "Delta", "path": str(tmp_path / "orders")}
    first, again = (export(session, tmp_path, path, **COMPARED) for _ in range(2))
    assert (first.reused, again.reused, again.source_versions) == (False, True, {"source": "2"})


def test_a_time_means_the_version_of_then(session: Any, orders: str, tmp_path: Path) -> None:
    times = session.sql(f"DESCRIBE HISTORY {orders}").orderBy("version").select("timestamp").collect()
    options = {"timestampAsOf": times[1]["timestamp"].isoformat(sep=" ")}
    result = export(session, tmp_path, {"table": orders, "format": "table", "options": options})
    assert (result.rows, result.source_versions) == (60, {"source": "1"})


@pytest.mark.parametrize("options", [{"readChangeFeed": True, "startingVersion": 0}, {"ignoreCorruptFiles": True}])
def test_other_options_are_those_of_the_reader_alone(session: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    session.sql(
        f"CREATE TABLE delta.`{tmp_path}/changes` USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true) "
        "AS SELECT id, CAST(id AS double) AS x FROM range(4)"
    )
    session.sql(f"DELETE FROM delta.`{tmp_path}/changes` WHERE id = 0")
    source = {"format": "delta", "path": f"{tmp_path}/changes", "options": options}
    result = export(session, tmp_path, source, prepare="tests.etl.prepares:numbers")
    assert (result.rows, result.source_versions) == (5 if "startingVersion" in options else 3, {})


def test_a_path_with_a_version_is_read_as_delta_reads_it(session: Any, orders: str, tmp_path: Path) -> None:
    result = export(session, tmp_path, {"format": "delta", "path": f"{tmp_path}/orders@v0"})
    assert (result.rows, result.source_versions) == (40, {})


def test_the_version_of_a_skipped_partition_is_its_own(session: Any, orders: str, tmp_path: Path) -> None:
    for name, number in (("a", 0), ("b", 2)):
        export(session, tmp_path, {"table": f"{orders}@{number}"}, partition=name, **COMPARED)
    again = export(session, tmp_path, {"table": f"{orders}@0"}, partition="a", **COMPARED)
    assert (again.reused, again.source_versions) == (True, {"source": "0"})


def test_a_file_system_that_spark_lacks_is_an_error_that_names_the_source(session: Any, tmp_path: Path) -> None:
    with pytest.raises(TrainyardError, match=r"the source delta at nofs://host/x cannot be read: .*No FileSystem"):
        export(session, tmp_path, {"format": "delta", "path": "nofs://host/x"})


def test_a_version_that_was_vacuumed_is_an_error_that_names_it(session: Any, orders: str, tmp_path: Path) -> None:
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    session.sql(f"VACUUM {orders} RETAIN 0 HOURS")
    with pytest.raises(Exception, match=r"(?s)orders.*(VACUUM|vacuum|does not exist|FILE_NOT_EXIST)"):
        export(session, tmp_path, {"table": f"{orders}@0"})


def test_a_version_that_the_table_never_had_is_an_error_that_names_it(
    session: Any, orders: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainyardError, match=r"the source table orders@9 cannot be read: .*version 9"):
        export(session, tmp_path, {"table": f"{orders}@9"})


def test_rows_that_were_added_since_a_version_are_exported_alone(session: Any, orders: str, tmp_path: Path) -> None:
    """Some of their files have been compacted with older ones."""
    for start in (100, 110):
        session.sql(f"INSERT INTO {orders} SELECT id, id / 4 FROM range({start}, {start + 10})")
    session.sql(f"OPTIMIZE {orders}")
    session.sql(f"ALTER TABLE {orders} ADD COLUMN city STRING")
    session.sql(f"INSERT INTO {orders} SELECT id, id / 4, 'Ulm' FROM range(120, 130)")
    source = {"table": orders, "options": {"since": 2}}
    result = export(session, tmp_path, source, prepare="tests.etl.prepares:numbers")
    assert (result.source_versions, read_ids(session, tmp_path)) == ({"source": "7"}, [*range(100, 130)])
    path = {"format": "delta", "path": str(tmp_path / "orders"), "options": {"since": 2, "versionAsOf": 3}}
    export(session, tmp_path / "path", path)
    assert read_ids(session, tmp_path / "path") == [*range(100, 110)]


def test_what_deletes_or_changes_rows_since_a_version_is_refused_by_its_number(
    session: Any, orders: str, tmp_path: Path
) -> None:
    message = "the source table orders@2 since 0: version 2 deletes or changes rows, .* Remove since to export the"
    with pytest.raises(TrainyardError, match=message):
        export(session, tmp_path, {"table": orders, "options": {"since": 0}})


def test_rows_since_a_version_that_is_no_longer_in_the_log_are_refused(
    session: Any, orders: str, tmp_path: Path
) -> None:
    with pytest.raises(TrainyardError, match="since version 9 is not known"):
        export(session, tmp_path, {"table": orders, "options": {"since": 9}})
    session.sql(f"ALTER TABLE {orders} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    session.sql(f"INSERT INTO {orders} VALUES (60, 15)")
    for version in range(4):  # as after delta.logRetentionDuration: version 4 has a checkpoint
        (tmp_path / f"orders/_delta_log/{version:020}.json").unlink()
    with pytest.raises(TrainyardError, match=r"since version 2 is not known.* history has expired"):
        export(session, tmp_path, {"table": orders, "options": {"since": 2}})


def test_a_table_to_which_nothing_was_added_since_has_no_rows(session: Any, orders: str, tmp_path: Path) -> None:
    session.sql(f"ALTER TABLE {orders} SET TBLPROPERTIES ('note' = 'x')")
    source = Source(format="table", table=orders, options={"since": "2", "versionAsOf": "3"})
    assert sources.read(session, source).count() == 0


def test_since_with_a_time_or_for_another_format_is_refused(session: Any, orders: str, tmp_path: Path) -> None:
    options = {"since": 0, "timestampAsOf": "2999-01-01"}
    with pytest.raises(TrainyardError, match="since is for tables of Delta and Iceberg, in their newest version"):
        export(session, tmp_path, {"format": "delta", "path": str(tmp_path / "orders"), "options": options})
