"""Shards that somebody else has written: each is read, or refused by name; no worker ends by a signal."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fork_server import get_context
from tests.trainer import datasets
from trainyard.errors import TrainyardError
from trainyard.etl.datasource import reader
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.manifest import DatasetManifest
from trainyard.trainer.data.reading.jagged import Jagged
from trainyard.trainer.data.reading.split_reader import SplitReader

ROWS = 37
NAMES = ("image", "a", "b", "flag", "tokens", "blob")


def write(directory: Path) -> Path:
    """Write a dataset of one shard with columns of each kind, and return the shard's file."""
    rng = np.random.default_rng(0)
    columns: datasets.Columns = {
        "image": rng.integers(0, 255, (ROWS, 2, 3), dtype=np.uint8),
        "a": np.arange(ROWS, dtype=np.int64),
        "b": np.arange(ROWS, dtype=np.int64),
        "flag": rng.random(ROWS) > 0.5,
        "tokens": [np.arange(number % 5) for number in range(ROWS)],
        "blob": [b"x" * (number % 3) for number in range(ROWS)],
    }
    datasets.write(directory, {"train": columns}, rows_per_batch=ROWS, shards=1)
    return directory / "shards/test/train-0.arrow"


def alter(file: Path, change: Callable[[bytes], bytes], **fields: Any) -> None:
    """Change a shard, and the manifest with it, as somebody can who may write to the dataset."""
    dataset = file.parents[2]
    data = change(file.read_bytes())
    file.write_bytes(data)
    manifest = manifests.read_current(str(dataset))
    [shard] = manifest.split("train").shards
    ends = list(accumulate(shard.lengths, initial=shard.begin))
    crc32s = [zlib.crc32(data[begin:end]) for begin, end in pairwise(ends)]
    shard = shard._replace(**{"bytes": len(data), "crc32s": crc32s, **fields})
    split = manifest.split("train").model_copy(update={"shards": (shard,), "rows": shard.rows})
    write_manifest(dataset, manifest.model_copy(update={"splits": {"train": split}}))


def write_manifest(dataset: Path, manifest: DatasetManifest) -> None:
    (dataset / "manifest.json").write_text(manifest.to_json())


def read_all(dataset: str, verify: bool = True) -> None:
    """Read each value of a dataset, in each way that the trainer has."""
    reader = SplitReader(dataset, manifests.read_current(dataset), "train", NAMES, verify)
    for number in range(len(reader.blocks)):
        block = reader.block(number)
        reader.prefetch([number])
        for names in [(name,) for name in NAMES] + [("a", "b")]:
            with suppress(KeyError):  # single columns of a group
                rows = block.select(names, slice(None))
                _ = rows.pack() if isinstance(rows, Jagged) else rows.copy()
        for row in range(reader.blocks[number]):
            reader.locate(number, row)


SPARK_SCHEMA = pa.schema(
    [
        ("image", pa.list_(pa.int16())), ("a", pa.int64()), ("b", pa.int64()), ("flag", pa.bool_()),
        ("tokens", pa.list_(pa.int64())), ("blob", pa.binary()),
    ]
)  # fmt: skip


def read_for_spark(dataset: str, verify: bool = False) -> None:
    """Read each value of a dataset as Spark's Python workers do after they have verified its checksum."""
    for shard in manifests.read_current(dataset).split("train").shards:
        for batch in reader.read_shard(dataset, shard, SPARK_SCHEMA):
            batch.to_pylist()


READERS = pytest.mark.parametrize("read", [read_all, read_for_spark])


def run(end: Connection, function: Callable[..., None], *arguments: Any) -> None:
    try:
        function(*arguments)
    except TrainyardError as error:
        end.send(str(error))
    else:
        end.send("")


def read_apart(function: Callable[..., None], *arguments: Any) -> str:
    """Return the error of a function in a process of its own, "" if there is none. The process ends by no signal."""
    context = get_context()
    end, other = context.Pipe()
    process = context.Process(target=run, args=(other, function, *arguments))
    process.start()
    other.close()
    process.join()
    assert process.exitcode == 0
    return str(end.recv())


@pytest.mark.slow
@READERS
def test_a_shard_that_claims_more_rows_than_it_has_is_refused(tmp_path: Path, read: Callable[..., None]) -> None:
    """A file of 4 kB that claims 40 million rows ended the worker with SIGBUS."""
    file, claimed = write(tmp_path), 40_000_000
    alter(
        file, lambda data: data.replace(struct.pack("<q", ROWS), struct.pack("<q", claimed)), rows=claimed,
        batch_rows=claimed,
    )  # fmt: skip
    error = read_apart(read, str(tmp_path), False)
    assert str(file) in error and "is not what the manifest describes" in error


@pytest.mark.slow
@READERS
def test_the_offsets_of_variable_length_rows_are_within_their_values(tmp_path: Path, read: Callable[..., None]) -> None:
    file = write(tmp_path)
    offsets = pa.array(np.cumsum([0, *(number % 5 for number in range(ROWS))]).astype(np.int32)).buffers()[1]
    assert offsets
    lying = np.frombuffer(offsets, np.int32, ROWS + 1).copy()
    lying[5:9] = [1 << 30, -7, 1 << 30, 3]
    alter(file, lambda data: data.replace(offsets.to_pybytes()[: 4 * (ROWS + 1)], lying.tobytes()))
    assert "is not what the manifest describes" in read_apart(read, str(tmp_path), False)


def write_compressed(file: Path) -> list[int]:
    """Write a shard of zeros again, compressed to almost nothing, and return the lengths of its record batches."""
    table = pa.ipc.open_file(file.read_bytes()).read_all()
    lengths = []
    with file.open("wb") as sink, pa.ipc.new_file(sink, table.schema, options=ZSTD) as writer:
        for batch in table.to_batches():
            offset = sink.tell() or 8 + table.schema.serialize().size
            writer.write_batch(batch)
            lengths.append(sink.tell() - offset)
    return lengths


ZSTD = pa.ipc.IpcWriteOptions(compression="zstd")


@pytest.mark.slow
@READERS
def test_a_compressed_shard_is_refused_before_it_is_decompressed(tmp_path: Path, read: Callable[..., None]) -> None:
    """Exports do not compress, and some kilobytes could become gigabytes."""
    file = write(tmp_path)
    alter(file, lambda data: data, lengths=write_compressed(file))
    alter(file, lambda data: data)
    assert "it is compressed" in read_apart(read, str(tmp_path), False)


@pytest.mark.parametrize(
    "fields",
    [
        {"begin": -8}, {"begin": 1 << 40}, {"lengths": [1 << 40]}, {"lengths": [-1]}, {"batch_rows": 0},
        {"batch_rows": -1}, {"lengths": [], "crc32s": []}, {"rows": ROWS - 1}, {"rows": 1 << 40}, {"crc32s": []},
    ],
    ids=str,
)  # fmt: skip
def test_a_manifest_that_describes_another_shard_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    alter(write(tmp_path), lambda data: data, **fields)
    with pytest.raises(TrainyardError, match=r"train-0\.arrow"):
        read_all(str(tmp_path))


@pytest.mark.parametrize(
    "change",
    [{"type": "float"}, {"kind": "tensor", "shape": (2,)}, {"kind": "list"}, {"type": "binary"}, {"shape": (0,)}],
    ids=str,
)
@pytest.mark.parametrize("name", NAMES)
def test_a_column_of_another_type_than_the_manifest_says_is_refused(
    tmp_path: Path, name: str, change: dict[str, Any]
) -> None:
    write(tmp_path)
    manifest = manifests.read_current(str(tmp_path))
    columns = tuple(column.model_copy(update=change) if column.name == name else column for column in manifest.columns)
    write_manifest(tmp_path, manifest.model_copy(update={"columns": columns}))
    with suppress(TrainyardError):
        read_all(str(tmp_path))


def fuzz(dataset: str) -> None:
    """Change some bytes of a shard, again and again, and read it."""
    manifest = manifests.read_current(dataset)
    [shard] = manifest.split("train").shards
    file = Path(dataset, shard.path)
    data = file.read_bytes()
    flips = st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), min_size=1, max_size=4)
    lengths = st.none() | st.integers(0, len(data) - 8).map(lambda at: at - at % 8)

    @settings(max_examples=400, database=None, deadline=None, suppress_health_check=[*HealthCheck])
    @given(flips, lengths, st.sampled_from([0, 1, 127, 1 << 20, 1 << 31, (1 << 63) - 1]))
    def flip(flips: list[tuple[int, int]], at: int | None, number: int) -> None:
        changed = bytearray(data)
        for position, value in flips:
            changed[position] = value
        if at is not None:  # a number of Arrow's metadata, which is aligned
            changed[at : at + 8] = struct.pack("<Q", number)
        file.write_bytes(changed)
        with suppress(TrainyardError):
            read_all(dataset, verify=False)
        with suppress(TrainyardError):
            read_for_spark(dataset, verify=False)

    flip()


@pytest.mark.slow
def test_a_shard_with_other_bytes_is_read_or_refused(tmp_path: Path) -> None:
    write(tmp_path)
    assert read_apart(fuzz, str(tmp_path)) == ""
