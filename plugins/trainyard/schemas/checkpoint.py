"""The index of a checkpoint: the document whose presence makes the files beside it a checkpoint.

A directory of checkpoints holds `step-STEP-group-GROUP/`, each with the files that torch's distributed
checkpoint wrote, and `checkpoint.json`, written last. Each gang writes to directories of its own.
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
    """A file of the checkpoint, with what it must be."""

    bytes: NonNegativeInt
    sha256: str


class Checkpoint(Document):
    """The state after `updates` steps of the optimizer: global batch `step` of `epoch` is the next one.

    `fingerprint` names the run that may go on from here: the same recipe, data, seed, global batch and strategy.
    `world` is the number of ranks that wrote it, `best` whether its epoch was the best so far.
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
    """Where gang number `gang` saves its state after `updates` steps."""
    return storage.join(root, f"step-{updates:08d}-group-{group}")


def list_checkpoints(root: str) -> list[tuple[int, int, str]]:
    """Updates, gang and URI of each checkpoint that was begun, the newest first; not all of them are whole."""
    found = ((name, _NAME.fullmatch(name)) for name in storage.list_names(root))
    return sorted(((int(m[1]), int(m[2]), storage.join(root, name)) for name, m in found if m), reverse=True)


def commit(uri: str, index: Checkpoint) -> None:
    """Make the files in the directory `uri` a checkpoint."""
    storage.create(storage.join(uri, INDEX), index.to_json().encode())


def committed(root: str, fingerprint: str) -> Iterator[tuple[str, Checkpoint | None, str]]:
    """URI, index, and what is wrong ("" if nothing) of the checkpoints below `root`, the newest first.

    Each file is read, and held against its checksum.
    """
    for _, _, uri in list_checkpoints(root):
        try:
            index = Checkpoint.load(storage.join(uri, INDEX))
        except FileNotFoundError:
            yield uri, None, "it was not finished"
            continue
        except TrainyardError as error:
            yield uri, None, str(error)
            continue
        if index.fingerprint != fingerprint:
            yield uri, index, "it is of another recipe, dataset, batch size, seed or strategy"
            continue
        yield uri, index, find_damage(uri, index)


def find_damage(uri: str, index: Checkpoint) -> str:
    """What is wrong with the files of a checkpoint; "" if nothing."""
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
