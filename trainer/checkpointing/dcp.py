"""Adapt torch's distributed checkpoint (DCP): checksums while writing, and no unpickling while reading.

The format is DCP's own, which torch reads as well. While a checkpoint is written, training goes on in another thread of
the same process, so that the bytes of tensors are hashed and written in large pieces, in which Python's lock is free.

This uses private interfaces of torch.distributed.checkpoint (`_traverse`, `_StorageInfo`, `_StoragePrefix`,
`_MEM_FORMAT_ENCODING`) and `torch.serialization.skip_data`, a prototype, as of torch 2.10, 2.11 and 2.15.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import count
from typing import IO, Any, NamedTuple

import torch
from torch import Tensor
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import (
    FileSystemReader,
    FileSystemWriter,
    _StorageInfo,
    _StoragePrefix,
)
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import (
    BytesIOWriteData,
    ReadItem,
    SavePlan,
    SavePlanner,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from trainyard.files.filesystems import locate
from trainyard.files.retries import retry
from trainyard.schemas.runs.checkpoint import File

METADATA = "metadata.pt"
FILE_BYTES = 1 << 30
"""A worker begins its next file once the current one is this large."""
OnProgress = Callable[[], None]
_READ_AHEAD_BYTES = 1 << 20
_SMALL_BYTES = 1 << 20
"""The bytes of small writes that are collected."""
_WRITTEN_BYTES = 16 << 20
"""The bytes of a tensor that are written at once, which bounds the memory of file systems that copy them."""

# What `torch.load` may create, in metadata and in the plans and results that workers exchange. A context manager would
# take them from the other thread, in which a checkpoint is written.
torch.serialization.add_safe_globals([
    _MEM_FORMAT_ENCODING, BytesIOWriteData, BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex,
    SavePlan, StorageMeta, TensorProperties, TensorStorageMetadata, TensorWriteData, WriteItem, WriteItemType,
    WriteResult, _StorageInfo, _StoragePrefix,
])  # fmt: skip


class Writer(FileSystemWriter):
    """Compute the checksum of each file while it is written.

    Args:
        uri: The directory of the checkpoint.
        sync_files: Whether to synchronize files with the disk.
        on_progress: Called after each part of a file that is written.

    Attributes:
        files: Size and checksum of each file, by name.
    """

    def __init__(self, uri: str, sync_files: bool, on_progress: OnProgress) -> None:
        super().__init__(uri, sync_files=sync_files)
        self.files: dict[str, File] = {}
        client, self.path = locate(uri)
        self.fs = _ChecksumFileSystem(client, self.files, on_progress)  # type: ignore[assignment]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write the items of this worker to files, which readers verify side by side."""
        self.fs.mkdir(self.path)
        items, results = deque(plan.items), list[WriteResult]()
        for number in count():
            name = f"{plan.storage_data.prefix}{number}.distcp"
            with self._create(name) as stream:
                while items and stream.tell() < FILE_BYTES:
                    item, offset = items.popleft(), stream.tell()
                    value = planner.resolve_data(item)
                    if isinstance(value, Tensor):
                        stream.write_tensor(value)
                    else:
                        stream.write(value.getbuffer())
                    length = stream.tell() - offset
                    results.append(WriteResult(item.index, length, _StorageInfo(name, offset, length)))
            if not items:
                break
        written: Future[list[WriteResult]] = Future()
        written.set_result(results)
        return written

    def write_metadata(self, document: bytes) -> None:
        """Write the metadata that `Reader` reads, beside the pickled one that `finish` writes for torch."""
        with self._create(METADATA) as stream:
            stream.write(document)

    @contextmanager
    def _create(self, name: str) -> Iterator[Any]:
        with self.fs.create_stream(self.fs.concat_path(self.path, name), "wb") as stream:
            yield stream
            if self.sync_files:
                os.fsync(stream.fileno())


class Reader(FileSystemReader):
    """Read files in larger pieces, and the metadata without unpickling. Reads are repeated as by `retry`.

    Args:
        uri: The directory of the checkpoint.
        on_progress: Called after each part of a file that is read.
    """

    def __init__(self, uri: str, on_progress: OnProgress) -> None:
        super().__init__(uri)
        client, self.path = locate(uri)
        self.fs = _BufferedFileSystem(client, f"read {uri}", on_progress)  # type: ignore[assignment]
        self._metadata: Metadata | None = None

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Return the metadata, as the base class does, but without unpickling. It is read once."""
        if self._metadata is not None:
            return self._metadata
        with self.fs.create_stream(self.fs.concat_path(self.path, METADATA), "rb") as stream:
            metadata: Metadata = torch.load(io.BytesIO(stream.read()), weights_only=True)
        if metadata.storage_meta:
            metadata.storage_meta.load_id = self.load_id
        self._metadata = metadata
        return metadata


class Planner(DefaultLoadPlanner):
    """Load values that are not tensors without unpickling."""

    def load_bytes(self, read_item: ReadItem, value: IO[bytes]) -> None:
        """Set a value, as the base class does, but without unpickling."""
        loaded = torch.load(value, weights_only=True)
        set_element(self.original_state_dict, self.mappings[read_item.dest_index.fqn], loaded)


class _FileSystem:
    """A client of `filesystems` as torch's writer and reader use one.

    torch's own `fsspec_filesystem` would connect to HDFS once more for each thread.
    """

    def __init__(self, client: Any) -> None:
        self.client = client

    @contextmanager
    def create_stream(self, path: str, mode: str) -> Iterator[Any]:
        with self.client.open(path, mode) as stream:
            yield stream

    def concat_path(self, path: str, suffix: str) -> str:
        return f"{path}/{suffix}"

    def mkdir(self, path: str) -> None:
        self.client.makedirs(path, exist_ok=True)

    def exists(self, path: str) -> bool:
        return bool(self.client.exists(path))

    def rename(self, path: str, new_path: str) -> None:
        self.client.mv(path, new_path)

    def rm_file(self, path: str) -> None:
        self.client.rm_file(path)


class _ChecksumFileSystem(_FileSystem):
    """A file system for torch's writer that records size and checksum of the files."""

    def __init__(self, client: Any, files: dict[str, File], on_progress: OnProgress) -> None:
        super().__init__(client)
        self._files, self._on_progress = files, on_progress

    @contextmanager
    def create_stream(self, path: str, mode: str) -> Iterator[Any]:
        with super().create_stream(path, mode) as stream:
            if mode != "wb":
                yield stream
                return
            checksum_stream = _ChecksumStream(stream, self._on_progress)
            yield checksum_stream
            checksum_stream.flush()
        digest = checksum_stream.digest.hexdigest()
        self._files[_get_name(path)] = File(bytes=checksum_stream.size, sha256=digest)

    def rename(self, path: str, new_path: str) -> None:
        super().rename(path, new_path)
        self._files[_get_name(new_path)] = self._files.pop(_get_name(path))


class _ChecksumStream:
    def __init__(self, stream: Any, on_progress: OnProgress) -> None:
        self._stream, self._on_progress = stream, on_progress
        self._small_writes = bytearray()
        self.digest, self.size = hashlib.sha256(), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.size += size
        if len(self._small_writes) + size <= _SMALL_BYTES:
            self._small_writes += data
        else:
            self._write_small_writes()
            self._write(data)
        return size

    def flush(self) -> None:
        self._write_small_writes()
        self._stream.flush()

    def fileno(self) -> int:
        """Return the descriptor of the file, which then has all that was written."""
        self.flush()
        return self._stream.fileno()  # type: ignore[no-any-return]

    def _write_small_writes(self) -> None:
        if self._small_writes:
            self._write(self._small_writes)
            self._small_writes = bytearray()

    def _write(self, data: Any) -> None:
        self.digest.update(data)
        self._stream.write(data)
        self._on_progress()

    def write_tensor(self, tensor: Tensor) -> None:
        """Write what `torch.save` writes of a tensor on the CPU, but for a checksum that `torch.load` ignores."""
        frame = _frame_tensor(tensor.dtype, tensor.shape, tensor.stride())
        if frame.size != tensor.untyped_storage().nbytes():  # a view of a part, or one that repeats values
            tensor = tensor.clone()
            frame = _frame_tensor(tensor.dtype, tensor.shape, tensor.stride())
        values: Tensor = torch.empty(0, dtype=torch.uint8, device="cpu").set_(tensor.untyped_storage())
        self.write(frame.before)
        for start in range(0, len(values), _WRITTEN_BYTES):
            self.write(memoryview(values[start : start + _WRITTEN_BYTES].numpy()))  # type: ignore[arg-type]
        self.write(frame.after)

    def tell(self) -> int:
        """Return the position of the next byte, which files on HDFS do not provide."""
        return self.size


class _Frame(NamedTuple):
    """What `torch.save` writes before and after the bytes of a tensor's storage, and their number."""

    before: bytes
    after: bytes
    size: int


@lru_cache(4096)
def _frame_tensor(dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> _Frame:
    tensor, stream = torch.empty_strided(shape, stride, dtype=dtype, device="cpu"), _FrameStream()
    with torch.serialization.skip_data():
        torch.save(tensor, stream)
    written = stream.getvalue()
    return _Frame(written[: stream.split], written[stream.split :], tensor.untyped_storage().nbytes())


class _FrameStream(io.BytesIO):
    split = 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Remember where the bytes would be, which `torch.save` skips."""
        self.split = self.tell()
        return self.split


class _BufferedFileSystem(_FileSystem):
    """A file system for torch's reader whose files can be read into existing memory."""

    def __init__(self, client: Any, what: str, on_progress: OnProgress) -> None:
        super().__init__(client)
        self._what, self._on_progress = what, on_progress

    @contextmanager
    def create_stream(self, path: str, mode: str) -> Iterator[io.BufferedReader]:
        with ExitStack() as stack:
            stream = retry(self._what, lambda: stack.enter_context(self.client.open(path, mode)))
            yield io.BufferedReader(_RawStream(stream, self._what, self._on_progress), _READ_AHEAD_BYTES)


class _RawStream(io.RawIOBase):
    def __init__(self, stream: Any, what: str, on_progress: OnProgress) -> None:
        self._stream, self._what, self._on_progress = stream, what, on_progress

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, memory: Any) -> int:
        position = self._stream.tell()

        def read() -> bytes:
            self._stream.seek(position)
            return self._stream.read(len(memory))  # type: ignore[no-any-return]

        data = retry(self._what, read)
        self._on_progress()
        memory[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._stream.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return self._stream.tell()  # type: ignore[no-any-return]


def _get_name(path: Any) -> str:
    return str(path).rsplit("/", 1)[-1]
