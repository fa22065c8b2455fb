"""Datasets for the trainer's tests, written with plain pyarrow, without the code of the export."""

from __future__ import annotations

import hashlib
import zlib
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from trainyard.schemas.datasets import fitted_state
from trainyard.schemas.datasets import manifest as manifests
from trainyard.schemas.datasets.fitted_state import FittedState
from trainyard.schemas.datasets.manifest import Column, DatasetManifest, Partition, Provenance, Shard, Split, Statistics

Rows = NDArray[np.generic] | list[Any]
"""One array (rows, *shape), whose masked values are null; or for each row an array (length, *shape), or bytes."""
Columns = dict[str, Rows]
WRITER = Provenance(application="test", written_at="2026-01-01T00:00:00+00:00")


def write(
    directory: Path,
    splits: dict[str, Columns],
    rows_per_batch: int = 64,
    shards: int = 2,
    fitted: FittedState | None = None,
) -> str:
    """Write arrays (rows, *shape) as a dataset and return its URI."""
    splits_by_name = {
        name: _split(directory, name, columns, rows_per_batch, shards) for name, columns in splits.items()
    }
    first = next(iter(splits.values()))
    columns = tuple(_column(name, values) for name, values in first.items())
    document = DatasetManifest(
        number=1, columns=columns, splits=splits_by_name, spark_schema="{}", provenance=WRITER,
        partitions={"": Partition(directory="shards/test", version=1, rows=_rows(first), provenance=WRITER)},
        content_hash=manifests.content_hash(columns, splits_by_name), fitted=fitted.reference if fitted else None,
    )  # fmt: skip
    if fitted:
        fitted_state.save(str(directory), fitted)
    manifests.commit(str(directory), document)
    return str(directory)


def blobs(rows: int, seed: int = 0, classes: int = 3, size: int = 8) -> Columns:
    """Return rows around one center for each class, which are easy to learn."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(99).normal(size=(classes, size)) * 3
    label = rng.integers(0, classes, rows)
    return {"x": (centers[label] + rng.normal(size=(rows, size))).astype(np.float32), "label": label}


def sequences(rows: int, seed: int = 0, classes: int = 3) -> Columns:
    """Return rows of tokens, most of which are the number of the row's class, and of as many frames around a center."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, classes, rows)
    lengths = np.minimum(1 + rng.geometric(0.1, rows), 60)
    tokens = [np.where(rng.random(n) < 0.8, c, rng.integers(0, 10, n)) for n, c in zip(lengths, label, strict=True)]
    frames = [(5 + c + rng.normal(size=(n, 4))).astype(np.float32) for n, c in zip(lengths, label, strict=True)]
    return {"tokens": list(tokens), "frames": list(frames), "label": label, "row": np.arange(rows)}


def _column(name: str, values: Rows) -> Column:
    if isinstance(values, list) and isinstance(values[0], bytes):
        return Column(name=name, kind="scalar", type="binary")
    if isinstance(values, list):
        kind = str(pa.from_numpy_dtype(values[0].dtype))
        return Column(name=name, kind="list", type=kind, shape=values[0].shape[1:])
    kind = str(pa.from_numpy_dtype(values.dtype))
    kind_of_rows = "tensor" if values.ndim > 1 else "scalar"
    is_masked = isinstance(values, np.ma.MaskedArray)
    return Column(name=name, kind=kind_of_rows, type=kind, shape=values.shape[1:], nullable=is_masked)


def _split(directory: Path, name: str, columns: Columns, rows_per_batch: int, count: int) -> Split:
    rows = _rows(columns)
    bounds = np.linspace(0, rows, count + 1).astype(int)
    shards = []
    for number in range(count):
        part = {key: values[bounds[number] : bounds[number + 1]] for key, values in columns.items()}
        shards.append(_shard(directory, f"shards/test/{name}-{number}.arrow", part, rows_per_batch))
    return Split(rows=rows, shards=tuple(shards), statistics={key: _statistics(v) for key, v in columns.items()})


def _shard(directory: Path, path: str, columns: Columns, rows_per_batch: int) -> Shard:
    table = pa.table({key: _arrow(values) for key, values in columns.items()})
    file = directory / path
    file.parent.mkdir(parents=True, exist_ok=True)
    lengths: list[int] = []
    with file.open("wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches(rows_per_batch):
            offset = sink.tell() or 8 + table.schema.serialize().size
            writer.write_batch(batch)
            lengths.append(sink.tell() - offset)
    data = file.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    head = 8 + table.schema.serialize().size
    ends = list(accumulate(lengths, initial=head))
    crc32s = [zlib.crc32(data[begin:end]) for begin, end in pairwise(ends)]
    return Shard(path, table.num_rows, len(data), digest, head, min(rows_per_batch, table.num_rows), lengths, crc32s)


def _rows(columns: Columns) -> int:
    return len(next(iter(columns.values())))


def _arrow(values: Rows) -> pa.Array:
    if isinstance(values, list) and isinstance(values[0], bytes):
        return pa.array(values, pa.binary())
    if isinstance(values, list):
        kind = pa.list_(pa.from_numpy_dtype(values[0].dtype))
        return pa.array([row.ravel() for row in values], kind)
    if isinstance(values, np.ma.MaskedArray):
        return pa.array(values.data, mask=np.ma.getmaskarray(values))
    if values.ndim == 1:
        return pa.array(values)
    return pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(values))


def _statistics(values: Rows) -> Statistics:
    if isinstance(values, list) and isinstance(values[0], bytes):
        return Statistics(count=len(values))
    if isinstance(values, list):
        return _statistics(np.concatenate(values))
    nulls = 0
    if isinstance(values, np.ma.MaskedArray):
        nulls, values = int(np.ma.count_masked(values)), values.compressed()
    if not len(values):
        return Statistics(count=0, nulls=nulls)
    flat = values.reshape(len(values), -1).astype(np.float64)
    return Statistics(
        count=len(values), nulls=nulls, mean=tuple(flat.mean(0)), std=tuple(flat.std(0)), min=tuple(flat.min(0)),
        max=tuple(flat.max(0)),
    )  # fmt: skip
