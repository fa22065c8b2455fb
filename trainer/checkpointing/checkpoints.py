"""Save the state of a training in the background, with torch's distributed checkpoint, and find it again.

What is large or sharded (model, optimizer, state of the strategy) is written by all workers; the small rest by rank 0.
A checkpoint is valid once its index exists (`trainyard.schemas.runs.checkpoint`). What torch's `weights_only` refuses
is never unpickled.
"""

from __future__ import annotations

import hashlib
import io
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.tensor import DTensor

from trainyard.errors import TrainyardError, UnavailableError, summarize
from trainyard.files import storage, uris
from trainyard.files.retries import retry
from trainyard.schemas.runs import checkpoint as index
from trainyard.schemas.runs.checkpoint import Checkpoint, File
from trainyard.trainer.checkpointing.dcp import Planner, Reader, Writer
from trainyard.trainer.checkpointing.saver import Saver
from trainyard.trainer.checkpointing.staging import Staging
from trainyard.trainer.world import World

LOOP = "loop.pt"
SEPARATOR = "."
MAX_FAILURES = 3
"""How many checkpoints in a row may fail before the worker group ends, as after a lost worker."""

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
    on_progress: Callable[[], None] = lambda: None

    @property
    def position(self) -> Position:
        """The progress of the run when the checkpoint was saved."""
        return Position(self.index.updates, self.index.epoch, self.index.step)

    @cached_property
    def _entries(self) -> Mapping[str, Any]:
        """What is stored of each name; read once, because a group of another size asks for the state of each rank."""
        return Reader(self.uri, self.on_progress).read_metadata().state_dict_metadata

    def read_loop_state(self) -> dict[str, Any]:
        """Return the small state that rank 0 wrote."""
        data = retry(f"read {self.uri}", lambda: storage.read(uris.join(self.uri, LOOP)))
        return torch.load(io.BytesIO(data), weights_only=True)  # type: ignore[no-any-return]

    def read_tensors(self, prefix: str, like: Mapping[str, Tensor] = MappingProxyType({})) -> dict[str, Tensor]:
        """Return the tensors whose names begin with `prefix` and a dot, on the CPU, by the rest of their names.

        Args:
            prefix: The beginning of their names.
            like: Tensors by the rest of the names: where one of the same shape is sharded, only the shard of this
                worker is read.
        """
        tensors = {
            name: _allocate(entry, like.get(name.removeprefix(prefix + SEPARATOR)))
            for name, entry in self._entries.items()
            if name.startswith(prefix + SEPARATOR) and isinstance(entry, TensorStorageMetadata)
        }
        if tensors:
            self._load(tensors)
        return {name.removeprefix(prefix + SEPARATOR): tensor for name, tensor in tensors.items()}

    def read_paths(self, prefix: str) -> set[str]:
        """Return what names that begin with `prefix` and a dot go on with, up to any of their dots."""
        parts = [
            name.removeprefix(prefix + SEPARATOR).split(SEPARATOR)
            for name in self._entries
            if name.startswith(prefix + SEPARATOR)
        ]
        return {SEPARATOR.join(path[:count]) for path in parts for count in range(1, len(path) + 1)}

    def load_into(self, state: dict[str, Any]) -> None:
        """Replace the values of `state`, nested as it was saved, with those of the checkpoint."""
        self._load(state)

    def _load(self, state: dict[str, Any]) -> None:
        """Load what this worker needs of `state`; its error ends the other workers with it."""
        reader = Reader(self.uri, self.on_progress)
        reader.read_metadata()  # `load` would make an error of this an AssertionError
        try:
            load(state, storage_reader=reader, planner=Planner(), no_dist=True)
        except CheckpointException as error:
            causes = [cause for cause, _ in error.failures.values()]
            if unavailable := next((cause for cause in causes if isinstance(cause, UnavailableError)), None):
                raise UnavailableError(str(unavailable)) from error
            raise TrainyardError(
                f"checkpoint {self.uri} cannot be loaded: {_summarize(error)}. If the recipe now builds a different "
                "network, remove the checkpoints to start from the beginning."
            ) from error


def _allocate(entry: TensorStorageMetadata, like: Tensor | None) -> Tensor:
    """Return a tensor on the CPU, to load one into: sharded as `like`, if that has its shape."""
    dtype = entry.properties.dtype
    if isinstance(like, DTensor) and like.shape == entry.size:
        return torch.empty_like(like, dtype=dtype, device="cpu")
    return torch.empty(entry.size, dtype=dtype)


class Checkpoints:
    """The checkpoints of one run. All workers create it, and call its methods, together.

    A checkpoint that cannot be written is reported; after more than `MAX_FAILURES` in a row the worker group ends.

    Args:
        root: The directory of the checkpoints.
        fingerprint: Identifies the run; checkpoints with another fingerprint are neither used nor removed.
        application: The id of the Spark application.
        world: The workers.
        keep: How many checkpoints to keep.
        on_progress: Called now and then while checkpoints are verified, read and written.

    Attributes:
        group: The number of this worker group, which its checkpoints have in their names.
        newest: The newest valid checkpoint of the run, if there is one.
        failures: How many checkpoints in a row could not be written.
        last_error: Why the last checkpoint could not be written; None if it was.
        warnings: A sentence about the checkpoints that could not be written, if there are any.

    Raises:
        TrainyardError: Nothing can be written to `root`.
    """

    def __init__(
        self,
        root: str,
        fingerprint: str,
        application: str,
        world: World,
        keep: int,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._root, self._fingerprint, self._application = root, fingerprint, application
        self._world, self._keep, self._on_progress = world, keep, on_progress
        self._process_group = world.create_group()
        self._pending: Future[None] | None = None
        self._saved_at = time.monotonic()
        self._staging, self._saver = Staging(), Saver(self._process_group)
        self._indexes: dict[str, Checkpoint] = {}
        self._damaged: set[str] = set()
        self.failures = self._all_failures = 0
        self.last_error: str | None = None
        self.warnings: list[str] = []
        self.group = self._world.broadcast_value(self._claim_group() if world.is_main else 0)
        self.newest = self._find_newest()

    def seconds_since_save(self) -> float:
        """Return the seconds since the start of the last save, or of this group."""
        return time.monotonic() - self._saved_at

    def save(
        self, position: Position, state: dict[str, Any], constant: dict[str, Any], loop: Mapping[str, Any], best: bool
    ) -> None:
        """Copy the state, and write it in the background. Waits for the checkpoint before.

        Args:
            position: The progress of the run.
            state: The state of all workers, which torch's distributed checkpoint writes.
            constant: More of it, in tensors that do not change anymore, and are not copied.
            loop: The small state that rank 0 writes.
            best: Whether the last epoch was the best so far.

        Raises:
            UnavailableError: Too many checkpoints in a row could not be written.
            TrainyardError: A later group has started, or the state cannot be loaded again.
        """
        self.wait()
        self._saved_at = time.monotonic()
        loop_file = io.BytesIO()
        torch.save(dict(loop), loop_file)
        state = self._staging.copy(state) | constant
        self._pending = Future()
        arguments = (self._pending, position, state, loop_file.getvalue(), best)
        # A daemon thread: after the failure of another worker, it may wait until the process group is destroyed.
        threading.Thread(target=self._run, args=arguments, name="checkpoint", daemon=True).start()

    def wait(self) -> None:
        """Wait until the last checkpoint is written, or cannot be.

        Raises:
            TrainyardError: See `save`.
        """
        pending, self._pending = self._pending, None
        error = pending.exception() if pending else None
        if pending and error is None:
            self.failures, self.last_error = 0, None
        if error is None:
            return
        if _is_final(error):
            raise error
        self.failures += 1
        self._all_failures += 1
        self.last_error = str(error)
        self.warnings = [f"Of the checkpoints, {self._all_failures} could not be written; the last error was: {error}"]
        if self.failures > MAX_FAILURES:
            raise UnavailableError(
                f"{self.failures} checkpoints in a row could not be written to {self._root}: {error}"
            ) from error
        if self._world.is_main:
            print(f"a checkpoint could not be written to {self._root}: {error}. Training continues.", flush=True)

    def close(self) -> None:
        """Wait for the end of a write, whatever its result.

        In a group it may wait for a worker that has failed, and ends with the process group.
        """
        if self._pending and not self._process_group:
            self._pending.exception()

    def check_is_newest_group(self) -> None:
        """Check that no later group has started. Raises TrainyardError if one has: this group must publish nothing."""
        newest = retry(f"read {self._root}", partial(index.read_newest_group, self._root))
        if newest > self.group:
            raise TrainyardError(
                f"worker group {newest} has started for this task, so group {self.group} ends: the driver of the "
                "later group did not find it running."
            )

    def _claim_group(self) -> int:
        try:
            return retry(f"write to {self._root}", lambda: index.claim_group(self._root))
        except UnavailableError:
            raise
        except Exception as error:  # each file system raises exceptions of its own
            raise TrainyardError(f"checkpoints cannot be written to {self._root}: {_summarize(error)}") from error

    def _find_newest(self) -> SavedCheckpoint | None:
        """Return the newest valid checkpoint of this run; each worker verifies a part of its files."""
        candidates = self._list_candidates() if self._world.is_main else iter(())
        while candidate := self._world.broadcast_value(next(candidates, None)):
            uri, document = candidate
            checkpoint = Checkpoint.from_json(document)
            own = list(checkpoint.files)[self._world.rank :: self._world.size]
            find_damage = partial(index.find_damage, uri, checkpoint, own, self._on_progress)
            problems = self._world.gather(retry(f"read {uri}", find_damage))
            problem = next(filter(None, problems), None)
            if problem is None:
                return SavedCheckpoint(uri, checkpoint, self._on_progress)
            self._skip(uri, problem)
            self._damaged.add(uri)
        return None

    def _list_candidates(self) -> Iterator[tuple[str, str]]:
        """Yield the URI and the index, as JSON, of the checkpoints of this run, the newest first."""
        for uri, checkpoint, problem in index.read_checkpoints(self._root, self._fingerprint):
            if checkpoint:
                self._indexes[uri] = checkpoint
            if checkpoint and not problem:
                yield uri, checkpoint.to_json()
            else:
                self._skip(uri, problem)

    def _skip(self, uri: str, problem: str) -> None:
        if self._world.is_main:
            print(f"skipping checkpoint {uri}: {problem}", flush=True)

    def _run(self, done: Future[None], *arguments: Any) -> None:
        if self._world.device.type == "cuda":
            torch.cuda.set_device(self._world.device)
        try:
            self._write(*arguments)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    def _write(self, position: Position, state: dict[str, Any], loop: bytes, best: bool) -> None:
        """Write a checkpoint. An error that a worker has is raised by all, so that they count the same failures.

        An error of the connection between them is raised at once: another collective with workers that are still in
        this one would abort their processes.
        """
        uri = index.checkpoint_uri(self._root, position.updates, self.group)
        files = self._saver.save(state, Writer(uri, storage.local_path(uri) is not None, self._on_progress))
        error: Exception | None = None
        if self._world.is_main:
            try:
                self._commit(uri, position, files, loop, best)
            except Exception as raised:
                error = raised
        own = None if error is None else (_is_final(error), _summarize(error))
        if failure := self._world.broadcast_value(own, self._process_group):
            fatal, text = failure
            raise (TrainyardError if fatal else RuntimeError)(text) from error

    def _commit(self, uri: str, position: Position, files: dict[str, File], loop: bytes, best: bool) -> None:
        _check_loadable(loop)
        storage.replace(uris.join(uri, LOOP), loop)
        files = files | {LOOP: File(bytes=len(loop), sha256=hashlib.sha256(loop).hexdigest())}
        checkpoint = Checkpoint(
            updates=position.updates, epoch=position.epoch, step=position.step, group=self.group,
            world=self._world.size, best=best, fingerprint=self._fingerprint, application=self._application,
            saved_at=time.time(), files=files,
        )  # fmt: skip
        self.check_is_newest_group()
        index.commit(uri, checkpoint)
        self._indexes[uri] = checkpoint
        try:
            self._prune()
        except Exception as error:  # the checkpoint is committed; the next one removes what is left
            print(f"old checkpoints in {self._root} cannot be removed: {_summarize(error)}", flush=True)

    def _prune(self) -> None:
        """Remove checkpoints of this run that are old, damaged or incomplete, but not the newest of a best epoch.

        Checkpoints of later groups, of runs with another fingerprint, and of other versions of Trainyard stay.
        """
        kept, has_best = 0, False
        for group, _, uri in index.list_checkpoints(self._root):
            if group > self.group:
                continue
            try:
                checkpoint = self._read_index(uri)
            except TrainyardError:
                continue
            if checkpoint and checkpoint.fingerprint != self._fingerprint:
                continue
            is_valid = checkpoint is not None and uri not in self._damaged
            is_best = is_valid and not has_best and checkpoint is not None and checkpoint.best
            has_best = has_best or is_best
            if is_valid and (kept < self._keep or is_best):
                kept += 1
            else:
                storage.remove(uri)
                self._indexes.pop(uri, None)

    def _read_index(self, uri: str) -> Checkpoint | None:
        """Return the index of a checkpoint, None if it was not committed. Raises TrainyardError if it is not valid."""
        if uri not in self._indexes:
            try:
                self._indexes[uri] = Checkpoint.load(uris.join(uri, index.INDEX))
            except FileNotFoundError:
                return None
        return self._indexes[uri]


def _is_final(error: BaseException) -> bool:
    """Return whether an error of a checkpoint ends the training, and is not one of the storage, which may pass."""
    return isinstance(error, TrainyardError) and not isinstance(error, UnavailableError)


def _summarize(error: BaseException) -> str:
    """Return the error of the first worker that failed, in one line."""
    if isinstance(error, CheckpointException):
        error = next(iter(error.failures.values()))[0]
    return summarize(error)


def _check_loadable(loop: bytes) -> None:
    try:
        torch.load(io.BytesIO(loop), weights_only=True)
    except Exception as error:
        raise TrainyardError(
            "the state of the recipe's schedule cannot be loaded again without unpickling code: "
            f"{str(error).splitlines()[0]}. Return numbers, strings, lists, dicts and tensors from its state_dict()."
        ) from error
