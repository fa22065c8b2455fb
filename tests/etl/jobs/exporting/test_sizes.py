"""The rows of an Arrow batch are some 8 MiB, and a large source has many shards."""

from __future__ import annotations

import pytest
from pyspark.sql import types as spark

from trainyard.etl.jobs.exporting import sizes
from trainyard.schemas.datasets.manifest import Column, DatasetManifest, Provenance, Shard, Split

PIXELS = Column(name="pixels", kind="tensor", type="float", shape=(64,))
TENSOR = Column(name="tensor", kind="tensor", type="float", shape=(1 << 20,))
IMAGE = Column(name="image", kind="scalar", type="binary")
TOKENS = Column(name="tokens", kind="list", type="int32")
TEXT = Column(name="text", kind="scalar", type="string")


def make_dataset(*columns: Column, rows: int, row_bytes: int) -> DatasetManifest:
    shard = Shard("s", rows, rows * row_bytes, "0", 0, rows, [rows * row_bytes], [0])
    return DatasetManifest(
        number=1, columns=columns, splits={"train": Split(rows=rows, shards=(shard,), statistics={})}, partitions={},
        spark_schema="{}", provenance=Provenance(application="a", written_at="now"), content_hash="0",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "rows"),
    [((PIXELS,), 32_768), ((TENSOR,), 2), ((TENSOR, TENSOR, TENSOR), 1), ((IMAGE,), 511), ((), 65_536)],
)
def test_a_batch_has_as_many_rows_as_fit(columns: tuple[Column, ...], rows: int) -> None:
    assert sizes.choose_batch_rows(columns) == rows


@pytest.mark.parametrize(
    ("columns", "row_bytes", "rows"),
    [
        ((IMAGE,), 4 << 20, 2),
        ((IMAGE, PIXELS), (1 << 20) + 256, 7),
        ((TEXT, PIXELS), (1 << 20) + 256, 7),
        ((TOKENS,), 100, 65_536),
        ((PIXELS,), 1 << 20, 32_768),
    ],
)
def test_rows_of_variable_length_have_the_size_that_they_have_in_the_dataset(
    columns: tuple[Column, ...], row_bytes: int, rows: int
) -> None:
    dataset = make_dataset(*columns, rows=10, row_bytes=row_bytes)
    assert sizes.choose_batch_rows(columns, dataset) == rows


def test_a_text_is_taken_for_small_beside_images_that_are_not_read() -> None:
    """The shards show the size of both together."""
    dataset = make_dataset(TEXT, IMAGE, rows=10, row_bytes=1 << 20)
    assert sizes.choose_batch_rows((TEXT,), dataset) == 65_536


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [(0, 65_536), (4, 65_536), (4 * 10_000, 209), (1 << 23, 1), (1 << 30, 1)]
)
def test_rows_of_so_many_bytes_make_a_batch(row_bytes: int, rows: int) -> None:
    assert sizes.fit_rows(row_bytes) == rows


@pytest.mark.parametrize(
    ("kind", "rows"),
    [(spark.BinaryType(), 511), (spark.ArrayType(spark.FloatType()), 512), (spark.StringType(), 65_536)],
)
def test_a_column_of_a_frame_has_the_size_of_its_type(kind: spark.DataType, rows: int) -> None:
    assert sizes.choose_batch_rows(sizes.describe_fields([spark.StructField("key", kind)])) == rows


@pytest.mark.parametrize(
    ("most", "source", "shards"),
    [
        ("50", 0, 8), ("50", 10 << 30, 40), ("50", 1 << 40, 200), ("50", (1 << 63) - 1, 200), ("1", 1 << 40, 8),
        (None, 1 << 40, 4096), (None, (1 << 63) - 1, 8), (None, 1 << 59, 8),
        (str((1 << 31) - 1), (1 << 63) - 1, 8),
    ],
)  # fmt: skip
def test_with_dynamic_allocation_shards_follow_the_source_up_to_the_cores_of_all_executors(
    most: str | None, source: int, shards: int
) -> None:
    conf = {"spark.executor.cores": "4"} | ({"spark.dynamicAllocation.maxExecutors": most} if most else {})
    assert sizes.choose_shard_count(8, conf, source) == shards
