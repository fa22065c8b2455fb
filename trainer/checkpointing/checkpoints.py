"""Save the state of a training in the background, with torch's distributed checkpoint, and find it again.

What is large or sharded (model, optimizer, state of the strategy) is written by all workers; the small rest by rank 0.
A checkpoint is valid once its index exists (`trainyard.schemas.checkpoint`). What torch's `weights_only` refuses is
never unpickled.
"""

from __future__ import annotations

import hashlib
import io
import threading
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas import checkpoint as index
from trainyard.schemas.checkpoint import Checkpoint, File
from trainyard.trainer.checkpointing.dcp import Planner, Reader, Writer
from trainyard.trainer.world import World

LOOP = "loop.pt"
SEPARATOR = "."


warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")


@dataclass(frozen=True)
class Position:
    """The progress of a run.

    Attributes:
        updates: The number of optimizer steps.
        epoch: The current epoch.
        step: The next global batch of that epoch.
    """

    updates: int = 0
    epoch: int = 0
    step: int = 0


@dataclass(frozen=True)
class SavedCheckpoint:
    """A committed checkpoint to resume from."""

    uri: str
    index: Checkpoint

    @property
    def position(self) -> Position:
        """The progress of the run when the checkpoint was saved."""
        return Position(self.index.updates, self.index.epoch, self.index.step)

    def read_loop_state(self) -> dict[str, Any]:
        """Return the small state that rank 0 wrote."""
        data = storage.read(storage.join(self.uri, LOOP))
        return torch.load(io.BytesIO(data), weights_only=True)  # type: ignore[no-any-return]

    def read_tensors(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with `prefix` and a dot, on the CPU, by the rest of their names."""
        reader = Reader(self.uri)
        tensors = {
            name: torch.empty(entry.size, dtype=entry.properties.dtype)
            for name, entry in reader.read_metadata().state_dict_metadata.items()
            if name.startswith(prefix + SEPARATOR) and isinstance(entry, TensorStorageMetadata)
        }
        self._load(tensors, no_dist=True)
        return {name.removeprefix(prefix + SEPARATOR): tensor for name, tensor in tensors.items()}

    def load_into(self, state: dict[str, Any]) -> None:
        """Replace the values of `state`, nested as it was saved, with those of the checkpoint."""
        self._load(state, no_dist=not dist.is_initialized())

    def _load(self, state: dict[str, Any], no_dist: bool) -> None:
        try:
            load(state, storage_reader=Reader(self.uri), planner=Planner(), no_dist=no_dist)
        except (CheckpointException, RuntimeError) as error:
            raise TrainyardError(
                f"checkpoint {self.uri} cannot be loaded: {_summarize(error)}. If the recipe now builds a different "
                "network, remove the checkpoints to start from the beginning."
            ) from error


class Checkpoints:
    """The checkpoints of one run. All workers create it, and call its methods, together.

    Args:
        root: The directory of the checkpoints.
        fingerprint: Identifies the run; checkpoints with another fingerprint are skipped.
        application: The id of the Spark application.
        world: The workers.
        keep: How many checkpoints to keep.

    Attributes:
        group: The number of this worker group, which its checkpoints have in their names.
        newest: The newest valid checkpoint of the run, if there is one.
    """

    def __init__(self, root: str, fingerprint: str, application: str, world: World, keep: int) -> None:
        self._root, self._fingerprint, self._application = root, fingerprint, application
        self._world, self._keep = world, keep
        self._process_group = dist.new_group(backend="gloo") if world.size > 1 else None
        self._pending: Future[None] | None = None
        self._saved_at = time.monotonic()
        self.group, self.newest = self._broadcast(self._find_newest() if world.is_main else None)

    def seconds_since_save(self) -> float:
        """Return the seconds since the start of the last save, or of this group."""
        return time.monotonic() - self._saved_at

    def save(self, position: Position, state: dict[str, Any], loop: Mapping[str, Any], best: bool) -> None:
        """Copy the state, and write it in the background. Waits for the checkpoint before.

        Args:
            position: The progress of the run.
            state: The state of all workers, which torch's distributed checkpoint writes.
            loop: The small state that rank 0 writes.
            best: Whether the last epoch was the best so far.

        Raises:
            TrainyardError: The checkpoint before could not be written.
        """
        self.wait()
        self._saved_at = time.monotonic()
        loop_file = io.BytesIO()
        torch.save(dict(loop), loop_file)
        state = copy_tensors(state)
        self._pending = Future()
        arguments = (self._pending, position, state, loop_file.getvalue(), best)
        # A daemon thread: after the failure of another worker, it may wait until the process group is destroyed.
        threading.Thread(target=self._run, args=arguments, name="checkpoint", daemon=True).start()

    def wait(self) -> None:
        """Wait until the last checkpoint is written.

        Raises:
            TrainyardError: It could not be written.
        """
        pending, self._pending = self._pending, None
        error = pending.exception() if pending else None
        if error is None or isinstance(error, TrainyardError):
            if error:
                raise error
            return
        raise TrainyardError(f"a checkpoint could not be written to {self._root}: {_summarize(error)}") from error

    def _find_newest(self) -> tuple[int, SavedCheckpoint | None]:
        """Return the number of this group, and the newest valid checkpoint of this run."""
        group = 1 + max((number for _, number, _ in index.list_checkpoints(self._root)), default=0)
        for uri, checkpoint, problem in index.verify_checkpoints(self._root, self._fingerprint):
            if checkpoint and not problem:
                return group, SavedCheckpoint(uri, checkpoint)
            print(f"skipping checkpoint {uri}: {problem}", flush=True)
        return group, None

    def _broadcast(self, newest: tuple[int, SavedCheckpoint | None] | None) -> tuple[int, SavedCheckpoint | None]:
        values: list[Any] = [newest]
        if self._world.size > 1:
            dist.broadcast_object_list(values, 0)
        return values[0]  # type: ignore[no-any-return]

    def _run(self, done: Future[None], *arguments: Any) -> None:
        try:
            self._write(*arguments)
        except BaseException as error:  # torch's CheckpointException is not an Exception
            done.set_exception(error)
        else:
            done.set_result(None)

    def _write(self, position: Position, state: dict[str, Any], loop: bytes, best: bool) -> None:
        uri = index.checkpoint_uri(self._root, position.updates, self.group)
        writer = Writer(uri, sync_files=storage.local_path(uri) is not None)
        save(state, storage_writer=writer, process_group=self._process_group, no_dist=self._process_group is None)
        files = self._gather_files(writer.files)
        if self._world.is_main:
            _check_loadable(loop)
            storage.replace(storage.join(uri, LOOP), loop)
            files[LOOP] = File(bytes=len(loop), sha256=hashlib.sha256(loop).hexdigest())
            index.commit(
                uri,
                Checkpoint(
                    updates=position.updates, epoch=position.epoch, step=position.step, group=self.group,
                    world=self._world.size, best=best, fingerprint=self._fingerprint, application=self._application,
                    saved_at=time.time(), files=files,
                ),
            )  # fmt: skip
            self._prune()

    def _gather_files(self, own: dict[str, File]) -> dict[str, File]:
        if self._process_group is None:
            return own
        by_rank: list[Any] | None = [None] * self._world.size if self._world.is_main else None
        dist.gather_object(own, by_rank, 0, self._process_group)  # type: ignore[arg-type]
        return {name: file for files in by_rank or [] for name, file in files.items()}

    def _prune(self) -> None:
        """Remove old and incomplete checkpoints, but not the newest of a best epoch, nor those of a later group."""
        kept, has_best = 0, False
        for _, group, uri in index.list_checkpoints(self._root):
            if group > self.group:
                continue
            committed = storage.exists(storage.join(uri, index.INDEX))
            is_best = committed and not has_best and Checkpoint.load(storage.join(uri, index.INDEX)).best
            has_best = has_best or is_best
            if committed and (kept < self._keep or is_best):
                kept += 1
            else:
                storage.remove(uri)


def copy_tensors(value: Any) -> Any:
    """Return `value` with all tensors copied to memory that training does not change."""
    if isinstance(value, DTensor):
        return value.detach().clone()
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: copy_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copy_tensors(item) for item in value)
    return value


def _summarize(error: BaseException) -> str:
    """Return the error of the first worker that failed, in one line."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _check_loadable(loop: bytes) -> None:
    try:
        torch.load(io.BytesIO(loop), weights_only=True)
    except Exception as error:
        raise TrainyardError(
            "the state of the recipe's schedule cannot be loaded again without unpickling code: "
            f"{str(error).splitlines()[0]}. Return numbers, strings, lists, dicts and tensors from its state_dict()."
        ) from error
