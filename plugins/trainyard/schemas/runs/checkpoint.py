"""The index of a checkpoint: the document whose presence makes the files beside it a checkpoint.

A directory of checkpoints holds `step-STEP-group-GROUP/`, each with the files that torch's distributed checkpoint wrote
and `checkpoint.json`, written last. Each start of a worker group claims a number, higher than all before it, with the
file `groups/GROUP`, and writes to directories of its own. A checkpoint is newer than those of groups with lower
numbers. When a task that succeeded is cleared, its checkpoints are removed, and then `removed` names the application
that had succeeded. `versions-ATTEMPT.json` has the versions of the datasets that the attempts from this one on read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ClassVar, NamedTuple

from pydantic import NonNegativeInt, PositiveInt

from trainyard.errors import TrainyardError, UnavailableError
from trainyard.files import storage, uris
from trainyard.files.retries import retry
from trainyard.schemas.document import Document, Part
from trainyard.schemas.types import ApplicationId, Digest, FileName

INDEX = "checkpoint.json"
REMOVED = "removed"
_GROUPS = "groups"
_NAME = re.compile(r"step-(\d+)-group-(\d+)")


class File(Part):
    """The expected size and checksum of a file of a checkpoint."""

    bytes: NonNegativeInt
    sha256: Digest


class Checkpoint(Document):
    """The state after `updates` optimizer steps; global batch `step` of `epoch` is the next one."""

    KIND: ClassVar[str] = "checkpoint"

    updates: NonNegativeInt
    """Optimizer steps since the beginning of the training."""
    epoch: NonNegativeInt
    """The current epoch, from 0."""
    step: NonNegativeInt
    """The next global batch of that epoch, from 0."""
    group: PositiveInt
    """The number of the worker group that wrote it."""
    world: PositiveInt
    """How many workers that group had."""
    best: bool
    """Whether its epoch was the best so far."""
    fingerprint: str
    """The hash of recipe, data, seed, global batch and strategy. Only a training with the same one resumes from this
    checkpoint."""
    application: ApplicationId
    """The Spark application that wrote it."""
    saved_at: float
    """When it was written, in seconds since the epoch."""
    files: dict[FileName, File]
    """The files beside the index, by name."""


class CheckpointDirectory(NamedTuple):
    """A directory of a checkpoint, which may not be committed."""

    group: int
    updates: int
    uri: str


def checkpoint_uri(root: str, updates: int, group: int) -> str:
    """Return where worker group number `group` saves the state after `updates` steps."""
    return uris.join(root, f"step-{updates:08d}-group-{group}")


def list_checkpoints(root: str) -> list[CheckpointDirectory]:
    """Return the checkpoint directories, newest first: by worker group, and by steps within a group."""
    matches = ((name, _NAME.fullmatch(name)) for name in storage.list_names(root))
    found = [CheckpointDirectory(int(m[2]), int(m[1]), uris.join(root, name)) for name, m in matches if m]
    return sorted(found, reverse=True)


def claim_group(root: str) -> int:
    """Return a number for a worker group that starts: higher than that of any group before."""
    number = 1 + max(read_newest_group(root), max((each.group for each in list_checkpoints(root)), default=0))
    while True:
        try:
            storage.create(uris.join(root, _GROUPS, f"{number:08d}"), b"")
        except FileExistsError:
            number += 1
        else:
            return number


def read_newest_group(root: str) -> int:
    """Return the number of the group that started last, 0 if there is none."""
    names = storage.list_names(uris.join(root, _GROUPS))
    return max((int(name) for name in names if name.isdigit()), default=0)


def commit(uri: str, index: Checkpoint) -> None:
    """Write the index, which makes the files in the directory `uri` a checkpoint."""
    storage.create(uris.join(uri, INDEX), index.to_json().encode())


def read_checkpoints(root: str, fingerprint: str) -> Iterator[tuple[str, Checkpoint | None, str]]:
    """Yield (URI, index, problem) of the checkpoints below `root`, newest first.

    Args:
        root: The directory of checkpoints.
        fingerprint: The fingerprint of the training that would resume.

    Yields:
        The URI; the index, None if it cannot be read; and why the checkpoint cannot be used, as far as its index
        shows that, else "".

    Raises:
        UnavailableError: The storage does not answer, for as long as reads are repeated.
    """
    for _, _, uri in retry(f"read {root}", partial(list_checkpoints, root)):
        try:
            index = retry(f"read {uri}", partial(Checkpoint.load, uris.join(uri, INDEX)))
        except FileNotFoundError:
            yield uri, None, "it was not committed"
        except UnavailableError:
            raise
        except TrainyardError as error:
            yield uri, None, str(error)
        else:
            matches = index.fingerprint == fingerprint
            yield uri, index, "" if matches else "it is of another recipe, dataset, batch size, seed or strategy"


def find_damage(uri: str, index: Checkpoint, names: Iterable[str], on_progress: Callable[[], None]) -> str:
    """Return what is wrong with some files of a checkpoint, "" if nothing is.

    Args:
        uri: The checkpoint.
        index: Its index.
        names: The names of the files.
        on_progress: Called now and then while files are read.
    """
    files = list(names)
    with ThreadPoolExecutor(8) as pool:
        problems = pool.map(lambda name: _problem(uris.join(uri, name), index.files[name], on_progress), files)
        return next((f"{name} {problem}" for name, problem in zip(files, problems, strict=True) if problem), "")


def _problem(uri: str, expected: File, on_progress: Callable[[], None]) -> str:
    try:
        length, sha256 = storage.checksum(uri, on_progress)
    except FileNotFoundError:
        return "is missing"
    if length != expected.bytes:
        return f"has {length} of {expected.bytes} bytes"
    return "" if sha256 == expected.sha256 else "was altered: its checksum differs"
