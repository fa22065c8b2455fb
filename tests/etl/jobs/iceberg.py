"""An export reads one version of an Iceberg table.

    make matrix ROWS=sources-iceberg-1.12.0

Iceberg needs Spark 4.1, settings that a session has from its start, and jars that Maven fetches.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stack.hadoop.jars import ICEBERG
from tests.etl.jobs.lakehouse import COMPARED, export, read_ids, use_session
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300, func_only=True)]


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The session of the tests, with a catalog `lake` of Iceberg tables."""
    settings = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": tmp_path_factory.mktemp("lake").as_uri(),
    }
    with use_session(request, ICEBERG, settings) as session:
        yield session


@pytest.fixture
def orders(session: Any) -> Iterator[str]:
    """A table of 40 rows, then of 60, and then of 60 with other values."""
    rows = "SELECT id, CAST(id / 4 AS double) AS x FROM range({})"
    session.sql(f"CREATE TABLE lake.sales.orders USING iceberg AS {rows.format('40')}")
    session.sql(f"INSERT INTO lake.sales.orders {rows.format('40, 60')}")
    session.sql("INSERT OVERWRITE lake.sales.orders SELECT id, -x FROM lake.sales.orders")
    yield "lake.sales.orders"
    session.sql("DROP TABLE lake.sales.orders PURGE")


def list_versions(session: Any, table: str) -> list[str]:
    """Return the ids of a table's snapshots, the first one first."""
    history = session.sql(f"SELECT snapshot_id FROM {table}.history ORDER BY made_current_at").collect()
    return [str(row["snapshot_id"]) for row in history]


def test_an_export_records_the_version_that_it_has_read(session: Any, orders: str, tmp_path: Path) -> None:
    result = export(session, tmp_path, {"table": orders})
    newest = list_versions(session, orders)[-1]
    provenance = manifest.read_current(str(tmp_path / "dataset")).provenance
    assert (result.rows, result.source_versions) == (60, {"source": newest})
    assert provenance.source == f"table {orders}@{newest}"


def test_an_export_is_repeated_after_the_table_has_moved_on(session: Any, orders: str, tmp_path: Path) -> None:
    oldest = list_versions(session, orders)[0]
    first = export(session, tmp_path, {"table": f"{orders}@{oldest}"})
    session.sql(f"DELETE FROM {orders} WHERE id < 30")
    again = export(session, tmp_path / "again", {"table": f"{orders}@{oldest}"})
    assert (again.rows, again.content_hash) == (40, first.content_hash)


def test_a_table_by_its_path_has_versions_too(session: Any, orders: str, tmp_path: Path) -> None:
    path = f"{session.conf.get('spark.sql.catalog.lake.warehouse')}/sales/orders"
    oldest, *_, newest = list_versions(session, orders)
    result = export(session, tmp_path, {"format": "iceberg", "path": path})
    assert (result.rows, result.source_versions) == (60, {"source": newest})
    source = {"format": "iceberg", "path": path, "options": {"versionAsOf": oldest}}
    assert export(session, tmp_path / "first", source).rows == 40


def test_what_is_written_during_an_export_is_not_read(session: Any, orders: str, tmp_path: Path) -> None:
    """`fit` reads the table, changes it, and the export reads it after that."""
    result = export(
        session, tmp_path, {"table": orders}, fit="tests.etl.prepares:delete_rows", split_by="id",
        fit_params={"table": orders},
    )  # fmt: skip
    assert session.table(orders).count() == 0
    assert result.rows == 60


def test_an_export_of_an_unchanged_table_writes_nothing(session: Any, orders: str, tmp_path: Path) -> None:
    assert not export(session, tmp_path, {"table": orders}, **COMPARED).reused
    again = export(session, tmp_path, {"table": orders}, **COMPARED)
    assert (again.reused, again.version, again.rows) == (True, 1, 60)
    session.sql(f"INSERT INTO {orders} VALUES (60, 15)")
    changed = export(session, tmp_path, {"table": orders}, **COMPARED)
    assert (changed.reused, changed.version, changed.rows) == (False, 2, 61)


def test_a_version_that_has_expired_is_an_error_that_names_it(session: Any, orders: str, tmp_path: Path) -> None:
    oldest = list_versions(session, orders)[0]
    session.sql(
        "CALL lake.system.expire_snapshots(table => 'sales.orders', retain_last => 1, "
        "older_than => TIMESTAMP '2999-01-01')"
    )
    with pytest.raises(TrainyardError, match=rf"the source table {orders}@{oldest} cannot be read: .*{oldest}"):
        export(session, tmp_path, {"table": f"{orders}@{oldest}"})


def test_a_branch_is_read_as_iceberg_reads_it(session: Any, orders: str, tmp_path: Path) -> None:
    oldest = list_versions(session, orders)[0]
    session.sql(f"ALTER TABLE {orders} CREATE BRANCH dev AS OF VERSION {oldest}")
    result = export(session, tmp_path, {"table": orders, "options": {"branch": "dev"}})
    assert (result.rows, result.source_versions) == (40, {})


def test_a_snapshot_that_was_rolled_back_has_a_version(session: Any, orders: str, tmp_path: Path) -> None:
    oldest, *_, newest = list_versions(session, orders)
    session.sql(f"CALL lake.system.rollback_to_snapshot('sales.orders', {oldest})")
    assert export(session, tmp_path, {"table": orders}).source_versions == {"source": oldest}
    result = export(session, tmp_path / "newest", {"table": f"{orders}@{newest}"})
    assert (result.rows, result.source_versions) == (60, {"source": newest})


def test_rows_that_were_added_since_a_version_are_exported_alone(session: Any, orders: str, tmp_path: Path) -> None:
    """Some of their files have been compacted with older ones."""
    since = list_versions(session, orders)[-1]
    for start in (100, 110):
        session.sql(f"INSERT INTO {orders} SELECT id, CAST(id AS double) FROM range({start}, {start + 10})")
    session.sql("CALL lake.system.rewrite_data_files(table => 'sales.orders', options => map('rewrite-all', 'true'))")
    session.sql(f"INSERT INTO {orders} VALUES (120, 3)")
    result = export(session, tmp_path, {"table": orders, "options": {"since": since}})
    newest = list_versions(session, orders)[-1]
    assert (result.source_versions, read_ids(session, tmp_path)) == ({"source": newest}, [*range(100, 121)])
    path = f"{session.conf.get('spark.sql.catalog.lake.warehouse')}/sales/orders"
    source = {"format": "iceberg", "path": path, "options": {"since": since}}
    assert export(session, tmp_path / "path", source).content_hash == result.content_hash


def test_what_deletes_or_changes_rows_since_a_version_is_refused_by_its_number(
    session: Any, orders: str, tmp_path: Path
) -> None:
    oldest, *_, newest = list_versions(session, orders)
    with pytest.raises(TrainyardError, match=rf"version {newest} \(overwrite\) deletes or changes rows"):
        export(session, tmp_path, {"table": orders, "options": {"since": oldest}})


def test_rows_since_a_version_that_has_expired_are_refused(session: Any, orders: str, tmp_path: Path) -> None:
    oldest = list_versions(session, orders)[0]
    session.sql(
        "CALL lake.system.expire_snapshots(table => 'sales.orders', retain_last => 1, "
        "older_than => TIMESTAMP '2999-01-01')"
    )
    with pytest.raises(TrainyardError, match=f"since version {oldest} is not known.* history has expired"):
        export(session, tmp_path, {"table": orders, "options": {"since": oldest}})
