"""The index of a checkpoint: the document whose presence makes the files beside it a checkpoint.

A directory of checkpoints holds `step-STEP-group-GROUP/`, each with the files that torch's distributed checkpoint wrote
and `checkpoint.json`, written last. Each start of a worker group writes to directories of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from pydantic import NonNegativeInt, PositiveInt

from trainyard import storage
from trainyard.errors import TrainyardError
from trainyard.schemas.document import Document, Part

INDEX = "checkpoint.json"
_NAME = re.compile(r"step-(\d+)-group-(\d+)")


class File(Part):
    """The expected size and checksum of a file of a checkpoint."""

    bytes: NonNegativeInt
    sha256: str


class Checkpoint(Document):
    """The state after `updates` optimizer steps; global batch `step` of `epoch` is the next one.

    Attributes:
        updates: Optimizer steps since the beginning of the training.
        epoch: The current epoch, from 0.
        step: The next global batch of that epoch, from 0.
        group: The number of the worker group that wrote it.
        world: How many workers that group had.
        best: Whether its epoch was the best so far.
        fingerprint: The hash of recipe, data, seed, global batch and strategy. Only a training with the same one
            resumes from this checkpoint.
        application: The Spark application that wrote it.
        saved_at: When it was written, in seconds since the epoch.
        files: The files beside the index, by name.
    """

    KIND: ClassVar[str] = "checkpoint"

    updates: NonNegativeInt
    epoch: NonNegativeInt
    step: NonNegativeInt
    group: PositiveInt
    world: PositiveInt
    best: bool
    fingerprint: str
    application: str
    saved_at: float
    files: dict[str, File]


def checkpoint_uri(root: str, updates: int, group: int) -> str:
    """Return where worker group number `group` saves the state after `updates` steps."""
    return storage.join(root, f"step-{updates:08d}-group-{group}")


def list_checkpoints(root: str) -> list[tuple[int, int, str]]:
    """Return (updates, group, URI) of each checkpoint directory, newest first; some may not be committed."""
    matches = ((name, _NAME.fullmatch(name)) for name in storage.list_names(root))
    return sorted(((int(m[1]), int(m[2]), storage.join(root, name)) for name, m in matches if m), reverse=True)


def commit(uri: str, index: Checkpoint) -> None:
    """Write the index, which makes the files in the directory `uri` a checkpoint."""
    storage.create(storage.join(uri, INDEX), index.to_json().encode())


def verify_checkpoints(root: str, fingerprint: str) -> Iterator[tuple[str, Checkpoint | None, str]]:
    """Yield (URI, index, problem) of the checkpoints below `root`, newest first; every file is read and verified.

    Args:
        root: The directory of checkpoints.
        fingerprint: The fingerprint of the training that would resume.

    Yields:
        The URI; the index, None if it cannot be read; and what is wrong, "" if the checkpoint can be used.
    """
    for _, _, uri in list_checkpoints(root):
        try:
            index = Checkpoint.load(storage.join(uri, INDEX))
        except FileNotFoundError:
            yield uri, None, "it was not committed"
            continue
        except TrainyardError as error:
            yield uri, None, str(error)
            continue
        if index.fingerprint != fingerprint:
            yield uri, index, "it is of another recipe, dataset, batch size, seed or strategy"
            continue
        yield uri, index, find_damage(uri, index)


def find_damage(uri: str, index: Checkpoint) -> str:
    """Return what is wrong with the files of a checkpoint, "" if nothing is."""
    with ThreadPoolExecutor(8) as pool:
        problems = pool.map(lambda name: _problem(storage.join(uri, name), index.files[name]), index.files)
        return next((f"{name} {problem}" for name, problem in zip(index.files, problems, strict=True) if problem), "")


def _problem(uri: str, expected: File) -> str:
    try:
        length, sha256 = storage.checksum(uri)
    except FileNotFoundError:
        return "is missing"
    if length != expected.bytes:
        return f"has {length} of {expected.bytes} bytes"
    return "" if sha256 == expected.sha256 else "was altered: its checksum differs"
