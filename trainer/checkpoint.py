"""Checkpoints: a run's state, written beside training by torch's distributed checkpoint, and found again.

What is large or sharded (model, optimizer, the strategy's state) is written by all ranks; the small rest by
rank 0. A checkpoint exists when its index does (`trainyard.contract.checkpoint`). Nothing is unpickled that
torch's `weights_only` refuses.
"""

from __future__ import annotations

import hashlib
import io
import threading
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint._traverse import set_element
from torch.distributed.checkpoint.api import CheckpointException
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
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor

from trainer.world import World
from trainyard.contract import checkpoint as index
from trainyard.contract import storage
from trainyard.contract.checkpoint import Checkpoint, File
from trainyard.contract.errors import TrainyardError

_READ_AHEAD = 1 << 20
LOOP = "loop.pt"
METADATA = "metadata.pt"
SEPARATOR = "."

_METADATA: list[Any] = [
    _MEM_FORMAT_ENCODING, BytesStorageMetadata, ChunkStorageMetadata, Metadata, MetadataIndex, StorageMeta,
    TensorProperties, TensorStorageMetadata, _StorageInfo,
]  # fmt: skip

warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


@dataclass(frozen=True)
class Position:
    """How far a run has come: `updates` steps of the optimizer; global batch `step` of `epoch` is the next one."""

    updates: int = 0
    epoch: int = 0
    step: int = 0


@dataclass(frozen=True)
class Saved:
    """A whole checkpoint that this gang can go on from."""

    uri: str
    index: Checkpoint

    @property
    def position(self) -> Position:
        return Position(self.index.updates, self.index.epoch, self.index.step)

    def loop(self) -> dict[str, Any]:
        """The small state that rank 0 wrote."""
        return torch.load(io.BytesIO(storage.read(storage.join(self.uri, LOOP))), weights_only=True)  # type: ignore[no-any-return]

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names begin with `prefix` and a dot, on the CPU, by the rest of their names."""
        reader = Reader(self.uri)
        found = {
            name: torch.empty(entry.size, dtype=entry.properties.dtype)
            for name, entry in reader.read_metadata().state_dict_metadata.items()
            if name.startswith(prefix + SEPARATOR) and isinstance(entry, TensorStorageMetadata)
        }
        self._load(found, alone=True)
        return {name.removeprefix(prefix + SEPARATOR): tensor for name, tensor in found.items()}

    def fill(self, state: dict[str, Any]) -> None:
        """Replace the values in `state`, nested as it was saved, by those of the checkpoint."""
        self._load(state, alone=not dist.is_initialized())

    def _load(self, state: dict[str, Any], alone: bool) -> None:
        try:
            load(state, storage_reader=Reader(self.uri), planner=Planner(), no_dist=alone)
        except (CheckpointException, RuntimeError) as error:
            raise TrainyardError(
                f"checkpoint {self.uri} cannot be loaded: {_reason(error)}. If the recipe builds "
                "another network than before, remove the checkpoints to begin anew."
            ) from error


class Checkpoints:
    """The checkpoints of one run below `root`, as one rank of a gang sees them.

    `fits` names the run: a checkpoint of another is passed over. All ranks make it, and call its methods,
    together.
    """

    def __init__(self, root: str, fits: str, application: str, world: World, keep: int) -> None:
        self._root, self._fits, self._application = root, fits, application
        self._world, self._keep = world, keep
        self._group = dist.new_group(backend="gloo") if world.size > 1 else None
        self._pending: Future[None] | None = None
        self._begun = time.monotonic()
        self.gang, self.newest = self._agreed(self._look() if world.leads else None)

    def since(self) -> float:
        """Seconds since the last checkpoint was begun, or this gang."""
        return time.monotonic() - self._begun

    def save(self, position: Position, state: dict[str, Any], loop: Mapping[str, Any], best: bool) -> None:
        """Copy the state, and write it while training goes on. Waits for the checkpoint before it.

        Raises TrainyardError when that one could not be written.
        """
        self.wait()
        self._begun = time.monotonic()
        small = io.BytesIO()
        torch.save(dict(loop), small)
        held = copied(state)
        self._pending = Future()
        arguments = (self._pending, position, held, small.getvalue(), best)
        # A daemon: where a rank died, this may wait for it until the process group is gone.
        threading.Thread(target=self._work, args=arguments, name="checkpoint", daemon=True).start()

    def wait(self) -> None:
        """Until the last checkpoint is written."""
        pending, self._pending = self._pending, None
        error = pending.exception() if pending else None
        if error is None or isinstance(error, TrainyardError):
            if error:
                raise error
            return
        raise TrainyardError(f"a checkpoint could not be written to {self._root}: {_reason(error)}") from error

    def _look(self) -> tuple[int, Saved | None]:
        """This gang's number, and the newest checkpoint that is whole and of this run."""
        gang = 1 + max((number for _, number, _ in index.written(self._root)), default=0)
        for uri, found, problem in index.whole(self._root, self._fits):
            if found and not problem:
                return gang, Saved(uri, found)
            print(f"checkpoint {uri} is passed over: {problem}", flush=True)
        return gang, None

    def _agreed(self, mine: tuple[int, Saved | None] | None) -> tuple[int, Saved | None]:
        told: list[Any] = [mine]
        if self._world.size > 1:
            dist.broadcast_object_list(told, 0)
        return told[0]  # type: ignore[no-any-return]

    def _work(self, done: Future[None], *arguments: Any) -> None:
        try:
            self._write(*arguments)
        except BaseException as error:  # torch's CheckpointException is no Exception
            done.set_exception(error)
        else:
            done.set_result(None)

    def _write(self, position: Position, state: dict[str, Any], loop: bytes, best: bool) -> None:
        uri = index.directory(self._root, position.updates, self.gang)
        writer = Writer(uri, sync_files=storage.local_path(uri) is not None)
        save(state, storage_writer=writer, process_group=self._group, no_dist=self._group is None)
        files = self._gathered(writer.files)
        if self._world.leads:
            _refuse_unsafe(loop)
            storage.replace(storage.join(uri, LOOP), loop)
            files[LOOP] = File(bytes=len(loop), sha256=hashlib.sha256(loop).hexdigest())
            index.commit(
                uri,
                Checkpoint(
                    updates=position.updates, epoch=position.epoch, step=position.step, gang=self.gang,
                    world=self._world.size, best=best, fits=self._fits, application=self._application,
                    saved_at=time.time(), files=files,
                ),
            )  # fmt: skip
            self._prune()

    def _gathered(self, mine: dict[str, File]) -> dict[str, File]:
        if self._group is None:
            return mine
        files: list[Any] | None = [None] * self._world.size if self._world.leads else None
        dist.gather_object(mine, files, 0, self._group)  # type: ignore[arg-type]
        return {name: file for part in files or [] for name, file in part.items()}

    def _prune(self) -> None:
        """Keep the newest, and the newest of a best epoch; leave alone what a later gang writes."""
        kept, best = 0, False
        for _, gang, uri in index.written(self._root):
            if gang > self.gang:
                continue
            whole = storage.exists(storage.join(uri, index.INDEX))
            is_best = whole and not best and Checkpoint.load(storage.join(uri, index.INDEX)).best
            best = best or is_best
            if whole and (kept < self._keep or is_best):
                kept += 1
            else:
                storage.remove(uri)


def copied(value: Any) -> Any:
    """`value` with every tensor copied to memory that training does not change."""
    if isinstance(value, DTensor):
        return value.detach().clone()
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(item) for item in value)
    return value


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


def _reason(error: BaseException) -> str:
    """What went wrong on the first of the ranks that failed, in a line."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _refuse_unsafe(loop: bytes) -> None:
    try:
        torch.load(io.BytesIO(loop), weights_only=True)
    except Exception as error:
        raise TrainyardError(
            "the recipe's schedule has a state that cannot be loaded again without running what is in it: "
            f"{str(error).splitlines()[0]}. Let its state_dict() return numbers, strings, lists, dicts and tensors."
        ) from error
