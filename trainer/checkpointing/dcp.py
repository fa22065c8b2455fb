"""Adapters for torch's distributed checkpoint (DCP): checksums while writing, no unpickling while reading."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import torch
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemBase, _StorageInfo
from torch.distributed.checkpoint.fsspec_filesystem import FsspecReader, FsspecWriter
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
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.storage import WriteResult

from trainyard.schemas.checkpoint import File

_READ_AHEAD = 1 << 20


METADATA = "metadata.pt"


_METADATA: list[Any] = [
    _MEM_FORMAT_ENCODING, BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
    TensorProperties, TensorStorageMetadata, _StorageInfo,
]  # fmt: skip


class Writer(FsspecWriter):
    """Takes the checksum of each file while it is written; the metadata is also written as torch saves things."""

    def __init__(self, uri: str, sync_files: bool) -> None:
        super().__init__(uri, sync_files=sync_files)
        self.files: dict[str, File] = {}
        self.fs = _Measured(self.fs, self.files)  # type: ignore[assignment]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        super().finish(metadata, results)
        with self.fs.create_stream(self.fs.concat_path(self.path, METADATA), "wb") as stream:
            torch.save(metadata, stream)  # type: ignore[arg-type]


class Reader(FsspecReader):
    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.fs = _Buffered(self.fs)  # type: ignore[assignment]

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """As the base does, without its unpickling."""
        with (
            self.fs.create_stream(self.fs.concat_path(self.path, METADATA), "rb") as stream,
            torch.serialization.safe_globals(_METADATA),
        ):
            metadata: Metadata = torch.load(io.BytesIO(stream.read()), weights_only=True)
        if metadata.storage_meta:
            metadata.storage_meta.load_id = self.load_id
        return metadata


class Planner(DefaultLoadPlanner):
    def load_bytes(self, read_item: ReadItem, value: IO[bytes]) -> None:
        """As the base does, without its unpickling."""
        loaded = torch.load(value, weights_only=True)
        set_element(self.original_state_dict, self.mappings[read_item.dest_index.fqn], loaded)


class _Measured:
    """A file system for torch's writer that notes size and checksum of what is written."""

    def __init__(self, fs: FileSystemBase, files: dict[str, File]) -> None:
        self._fs, self._files = fs, files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    @contextmanager
    def create_stream(self, path: str, mode: str) -> Iterator[Any]:
        with self._fs.create_stream(path, mode) as stream:
            if mode != "wb":
                yield stream
                return
            measured = _Stream(stream)
            yield measured
        self._files[_name(path)] = File(bytes=measured.size, sha256=measured.digest.hexdigest())

    def rename(self, path: str, new_path: str) -> None:
        self._fs.rename(path, new_path)
        self._files[_name(new_path)] = self._files.pop(_name(path))


class _Stream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.digest, self.size = hashlib.sha256(), 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += memoryview(data).nbytes
        return self._stream.write(data)  # type: ignore[no-any-return]

    def tell(self) -> int:
        """Where the next byte goes; files on HDFS do not say."""
        return self.size


class _Buffered:
    """A file system for torch's reader whose files can be read into memory that is there already."""

    def __init__(self, fs: FileSystemBase) -> None:
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fs, name)

    @contextmanager
    def create_stream(self, path: str, mode: str) -> Iterator[io.BufferedReader]:
        with self._fs.create_stream(path, mode) as stream:
            yield io.BufferedReader(_Raw(stream), _READ_AHEAD)


class _Raw(io.RawIOBase):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, memory: Any) -> int:
        data = self._stream.read(len(memory))
        memory[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._stream.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        return self._stream.tell()  # type: ignore[no-any-return]


def _name(path: Any) -> str:
    return str(path).rsplit("/", 1)[-1]
