"""Which versions of a dataset expire, which files they leave behind, and how few manifests are read for that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.trainer import datasets
from trainyard.files import storage
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets import versions
from trainyard.schemas.datasets.manifest import Column, DatasetManifest, Partition, Provenance, Shard, Split
from trainyard.schemas.datasets.versions import DAY, difference, expire

VERSIONS = 60
START = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def write_version(dataset: Path, number: int, day: float, partitions: Sequence[str] = ("day",)) -> DatasetManifest:
    """Commit a version that was written on a day; each of its partitions has a directory of its own."""
    provenance = Provenance(application="a", written_at=datetime.fromtimestamp(START + day * DAY, UTC).isoformat())
    written = {
        name: Partition(directory=f"shards/{name}-{number}", version=number, rows=1, provenance=provenance)
        for name in partitions
    }
    for partition in written.values():
        storage.replace(str(dataset / partition.directory / "train.arrow"), b"rows")
        storage.replace(str(dataset / partition.statistics), b"{}")
    older = manifests.read_latest(str(dataset))
    all_partitions = (dict(older.partitions) if older else {}) | written
    shards = tuple(Shard(f"{p.directory}/train.arrow", 1, 4, "0", 0, 1, [4], [0]) for p in all_partitions.values())
    document = DatasetManifest(
        number=number, columns=(Column(name="x", kind="scalar", type="float"),), spark_schema="{}",
        splits={"train": Split(rows=len(shards), shards=shards, statistics={})}, partitions=all_partitions,
        provenance=provenance, content_hash=str(number),
    )  # fmt: skip
    manifests.commit(str(dataset), document)
    return document


def expire_on(dataset: Path, day: float, keep: int = 1, days: float = 0) -> list[int]:
    return expire(str(dataset), keep=keep, days=days, now=START + day * DAY)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Versions 1 to 3, written on days 0, 10 and 20."""
    for number, day in ((1, 0), (2, 10), (3, 20)):
        write_version(tmp_path, number, day)
    return tmp_path


def test_the_age_of_a_version_counts_from_the_day_on_which_it_was_replaced(dataset: Path) -> None:
    assert expire_on(dataset, day=14.9, days=5) == []
    assert expire_on(dataset, day=15, days=5) == [1]
    assert expire_on(dataset, day=24.9, days=5) == []
    assert expire_on(dataset, day=25, days=5) == [2]


@pytest.mark.parametrize(("keep", "removed"), [(0, [1, 2]), (1, [1, 2]), (2, [1]), (3, []), (9, [])])
def test_the_newest_versions_stay_and_the_current_one_always(dataset: Path, keep: int, removed: list[int]) -> None:
    assert expire_on(dataset, day=100, keep=keep) == removed
    kept = [number for number in (1, 2, 3) if number not in removed]
    assert manifests.list_versions(str(dataset)) == kept
    assert storage.list_names(str(dataset / "shards")) == [f"day-{number}" for number in kept]


def test_only_files_that_no_remaining_version_refers_to_are_removed(tmp_path: Path) -> None:
    write_version(tmp_path, 1, day=0, partitions=["monday", "tuesday"])
    write_version(tmp_path, 2, day=1, partitions=["tuesday"])
    assert expire_on(tmp_path, day=2) == [1]
    assert storage.list_names(str(tmp_path / "shards")) == ["monday-1", "tuesday-2"]
    assert storage.list_names(str(tmp_path / "statistics")) == ["monday-1.json", "tuesday-2.json"]


@pytest.mark.parametrize(("days_ago", "removed"), [(0, []), (29.9, []), (30, [1]), (31, [1])])
def test_a_lease_ends_after_30_days(tmp_path: Path, days_ago: float, removed: list[int]) -> None:
    for number, day in ((1, 0), (2, 1)):
        write_version(tmp_path, number, day)
    started = int(START + (100 - days_ago) * DAY)
    storage.replace(str(tmp_path / "leases" / f"00000001-{started}-a-reader-of-dashes"), b"")
    assert expire_on(tmp_path, day=100) == removed


@pytest.mark.parametrize("name", [".hidden", "README", "how-to-release", "00000001-today-reader"])
def test_other_files_are_no_leases(dataset: Path, name: str) -> None:
    storage.replace(str(dataset / "leases" / name), b"")
    assert expire_on(dataset, day=100) == [1, 2]


def test_a_version_is_leased_while_it_is_read(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: START + 100 * DAY)
    with versions.lease(str(dataset), 1, "reader"):
        assert storage.list_names(str(dataset / "leases")) == [f"00000001-{int(START + 100 * DAY)}-reader"]
        assert expire(str(dataset), keep=1, days=0) == [2]
    assert expire(str(dataset), keep=1, days=0) == [1]


def test_a_dataset_that_is_not_writable_is_read_without_a_lease(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leases").write_text("a file where a directory should be")
    with versions.lease(str(tmp_path), 7, "reader"):
        output = capsys.readouterr().out
    assert f"version 7 of {tmp_path} is read without a lease, so it may expire meanwhile: " in output


def test_versions_are_listed_from_the_oldest_to_the_newest(dataset: Path) -> None:
    assert [version.number for version in versions.iterate(str(dataset))] == [1, 2, 3]


def test_files_of_failed_writers_are_unreferenced_and_removed(dataset: Path) -> None:
    for path in ("shards/failed/a.arrow", "shards/day-3/leftover.arrow", "statistics/failed.json"):
        storage.replace(str(dataset / path), b"")
    unreferenced = ["statistics/failed.json", "shards/day-3/leftover.arrow", "shards/failed"]
    assert versions.unreferenced(str(dataset)) == unreferenced
    assert versions.remove_unreferenced(str(dataset)) == unreferenced
    assert versions.unreferenced(str(dataset)) == []
    assert storage.list_names(str(dataset / "shards")) == ["day-1", "day-2", "day-3"]
    assert storage.list_names(str(dataset / "shards" / "day-3")) == ["train.arrow"]


def test_the_difference_of_two_versions_has_partitions_rows_and_columns(tmp_path: Path) -> None:
    old = write_version(tmp_path, 1, day=0, partitions=["a", "b", "c"])
    new = write_version(tmp_path, 2, day=1, partitions=["b", "d"])
    x, y = Column(name="x", kind="scalar", type="float"), Column(name="y", kind="scalar", type="int64")
    test = new.splits["train"].model_copy(update={"rows": 5})
    new = new.model_copy(
        update={
            "columns": (y,), "splits": {"train": new.splits["train"], "test": test},
            "partitions": {name: new.partitions[name] for name in ("b", "c", "d")},
        }
    )  # fmt: skip
    found = difference(old, new)
    assert (found.added, found.replaced, found.removed) == (("d",), ("b",), ("a",))
    assert found.rows == {"train": (3, 4), "test": (0, 5)}
    assert (found.old_columns, found.new_columns) == ((x,), (y,))
    back = difference(new, old)
    assert list(back.rows) == ["train", "test"] and back.rows["test"] == (5, 0)


@pytest.fixture
def daily(tmp_path: Path) -> str:
    """A dataset of 60 versions, of one a day, that all have the partition "" and the newest is of today."""
    uri = datasets.write(tmp_path / "d", {"train": datasets.blobs(10)})
    first = manifests.read_current(uri)
    for number in range(1, VERSIONS + 1):
        written = (datetime.now(UTC) - timedelta(days=VERSIONS - number)).isoformat(timespec="seconds")
        provenance = first.provenance.model_copy(update={"written_at": written})
        partition = first.partitions[""].model_copy(update={"directory": f"shards/{number}", "version": number})
        document = first.model_copy(update={"number": number, "provenance": provenance, "partitions": {"": partition}})
        if number == 1:
            manifests.remove_version(uri, 1)
        manifests.commit(uri, document)
    return uri


def test_versions_that_do_not_expire_are_not_read(daily: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int | None] = []
    read_version = manifests.read_version

    def record(uri: str, version: int | None = None, since: int | None = None) -> manifests.DatasetManifest:
        read.append(version)
        return read_version(uri, version, since)

    monkeypatch.setattr(manifests, "read_version", record)
    assert versions.expire(daily, keep=1, days=365) == []
    assert read == [1, 2]
    assert [version.number for version in versions.iterate(daily, after=VERSIONS - 1)] == [VERSIONS]
    assert read[2:] == [VERSIONS]


def test_of_old_versions_those_expire_that_are_neither_new_nor_leased(daily: str) -> None:
    with versions.lease(daily, 3, "reader"):
        assert versions.expire(daily, keep=1, days=50.5) == [1, 2, 4, 5, 6, 7, 8]
    assert versions.expire(daily, keep=50, days=0) == [3, 9, 10]
    assert manifests.list_versions(daily) == list(range(11, VERSIONS + 1))
