"""The content hash of a dataset names its columns and rows, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.schemas.manifest import Column, Shard, Split, content_hash

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
