"""The content hash of a dataset, and its versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plugins.schemas.datasets.test_versions import write_version
from trainyard.errors import TrainyardError
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import Column, Shard, Split, content_hash

COLUMNS = (Column(name="x", kind="tensor", type="float", shape=(2,)), Column(name="y", kind="scalar", type="int64"))


def split(**fields: Any) -> Split:
    first = {"path": "shards/1/a.arrow", "rows": 5, "bytes": 640, "sha256": "a" * 64, "begin": 8, "batch_rows": 5}
    shard = Shard(**(first | {"lengths": [600], "crc32s": [1]} | fields))
    return Split(rows=shard.rows, shards=(shard,), statistics={})


def digest(**fields: Any) -> str:
    return content_hash(COLUMNS, {"train": split(**fields), "test": split(sha256="b" * 64)})


@pytest.mark.parametrize("fields", [{"rows": 6}, {"sha256": "c" * 64}])
def test_other_rows_have_another_hash(fields: dict[str, Any]) -> None:
    assert digest(**fields) != digest()


@pytest.mark.parametrize("fields", [{"path": "shards/2/b.arrow"}, {"bytes": 641}, {"crc32s": [2]}])
def test_where_and_how_rows_are_stored_does_not_change_it(fields: dict[str, Any]) -> None:
    assert digest(**fields) == digest()


def test_columns_names_of_splits_and_their_order_are_part_of_it() -> None:
    splits = {"train": split(), "test": split(sha256="b" * 64)}
    renamed = {"train": splits["train"], "validation": splits["test"]}
    narrower = (COLUMNS[0].model_copy(update={"shape": (1,)}), COLUMNS[1])
    hashes = [
        content_hash(COLUMNS, splits), content_hash(COLUMNS[::-1], splits), content_hash(narrower, splits),
        content_hash(COLUMNS, renamed), content_hash(COLUMNS, dict(reversed(splits.items()))),
    ]  # fmt: skip
    assert len(set(hashes)) == len(hashes)
    assert len(hashes[0]) == 64


def test_the_hash_of_columns_and_rows_never_changes() -> None:
    """Stored datasets and models refer to it."""
    assert digest() == "013e1d4e24831d660d30db5be71cad6df8da69f0f749b94043fa6f6c715f33ff"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Versions 1 to 3."""
    for number in (1, 2, 3):
        write_version(tmp_path, number, day=number, partitions=[f"day-{number}"])
    return tmp_path


def test_the_newest_version_is_the_current_one(dataset: Path) -> None:
    assert manifests.read_version(str(dataset)).number == manifests.read_current(str(dataset)).number == 3


def test_a_version_is_read_by_its_number(dataset: Path) -> None:
    assert [manifests.read_version(str(dataset), number).number for number in (1, 2, 3)] == [1, 2, 3]


def test_what_was_added_after_a_version_is_read_alone(dataset: Path) -> None:
    assert sorted(manifests.read_version(str(dataset), 3).partitions) == ["day-1", "day-2", "day-3"]
    added = manifests.read_version(str(dataset), 3, since=1)
    assert sorted(added.partitions) == ["day-2", "day-3"]
    assert [shard.path for shard in added.splits["train"].shards] == [
        "shards/day-2-2/train.arrow", "shards/day-3-3/train.arrow",
    ]  # fmt: skip
    assert added.splits["train"].rows == 2
    assert added.content_hash == content_hash(added.columns, added.splits)


def test_a_version_that_adds_nothing_is_refused(dataset: Path) -> None:
    with pytest.raises(TrainyardError) as refused:
        manifests.read_version(str(dataset), 2, since=2)
    assert str(refused.value) == "version 2 of the dataset adds nothing to version 2."


def test_a_version_that_does_not_exist_is_named_with_those_that_do(dataset: Path) -> None:
    write_version(dataset, 4, day=4)
    manifests.remove_version(str(dataset), 1)
    with pytest.raises(TrainyardError) as refused:
        manifests.read_version(str(dataset), 9)
    assert str(refused.value) == f"{dataset} has no version 9; it has versions 2 to 4."


def test_a_dataset_without_versions_says_so(tmp_path: Path) -> None:
    with pytest.raises(TrainyardError) as refused:
        manifests.read_version(str(tmp_path), 1)
    assert str(refused.value) == f"{tmp_path} has no version 1; it has versions none."


def test_what_is_no_dataset_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(TrainyardError) as refused:
        manifests.read_current(str(tmp_path))
    assert str(refused.value) == (
        f"{tmp_path} is not a dataset: it has no manifest.json. Write it with ExportOperator, or with "
        "df.write.format('trainyard')."
    )


@pytest.mark.parametrize("name", [".00000004.json.part", "00000004.json._COPYING_", "README.md", "latest.json"])
def test_other_files_are_no_versions(dataset: Path, name: str) -> None:
    (dataset / "versions" / name).touch()
    assert manifests.list_versions(str(dataset)) == [1, 2, 3]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_version_that_was_committed_is_not_committed_again_also_if_it_has_expired(dataset: Path, number: int) -> None:
    late = manifests.read_version(str(dataset), number)
    for expired in range(1, min(number + 1, 3)):
        manifests.remove_version(str(dataset), expired)
    with pytest.raises(FileExistsError) as refused:
        manifests.commit(str(dataset), late)
    assert str(refused.value) == str(dataset / "versions" / f"{number:08d}.json")
