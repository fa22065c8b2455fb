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
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    TensorStorageMetadata,
)
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

    `fingerprint` names the run: a checkpoint of another is passed over. All ranks make it, and call its methods,
    together.
    """

    def __init__(self, root: str, fingerprint: str, application: str, world: World, keep: int) -> None:
        self._root, self._fingerprint, self._application = root, fingerprint, application
        self._world, self._keep = world, keep
        self._group = dist.new_group(backend="gloo") if world.size > 1 else None
        self._pending: Future[None] | None = None
        self._begun = time.monotonic()
        self.group, self.newest = self._agreed(self._look() if world.is_main else None)

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
        gang = 1 + max((number for _, number, _ in index.list_checkpoints(self._root)), default=0)
        for uri, found, problem in index.verify_checkpoints(self._root, self._fingerprint):
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
        uri = index.checkpoint_uri(self._root, position.updates, self.group)
        writer = Writer(uri, sync_files=storage.local_path(uri) is not None)
        save(state, storage_writer=writer, process_group=self._group, no_dist=self._group is None)
        files = self._gathered(writer.files)
        if self._world.is_main:
            _refuse_unsafe(loop)
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

    def _gathered(self, mine: dict[str, File]) -> dict[str, File]:
        if self._group is None:
            return mine
        files: list[Any] | None = [None] * self._world.size if self._world.is_main else None
        dist.gather_object(mine, files, 0, self._group)  # type: ignore[arg-type]
        return {name: file for part in files or [] for name, file in part.items()}

    def _prune(self) -> None:
        """Keep the newest, and the newest of a best epoch; leave alone what a later gang writes."""
        kept, best = 0, False
        for _, gang, uri in index.list_checkpoints(self._root):
            if gang > self.group:
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
