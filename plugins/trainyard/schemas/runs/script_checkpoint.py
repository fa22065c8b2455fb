"""The index of a script's checkpoint: the document whose presence makes files of the folder `files` a checkpoint.

It lies where those of a training do (`checkpoint`), as `step-NUMBER-group-GROUP/checkpoint.json`, with the number of
the checkpoint for the step. `files/GROUP-NUMBER-SHA256` has the content of files, which checkpoints share as long as
they do not change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, NonNegativeInt, PositiveInt

from trainyard.files import uris
from trainyard.schemas.document import Document, Part
from trainyard.schemas.results import Numbers
from trainyard.schemas.runs.checkpoint import INDEX, checkpoint_uri
from trainyard.schemas.types import Digest, FileName, RelativePath

CONTENTS = "files"
"""The folder with the content of files, beside the checkpoints."""
_CONTENT = re.compile(r"(\d{8,})-(\d{8,})-[0-9a-f]{64}")
_STAGED = re.compile(r"\.(\d{8,})-(\d{8,})-[0-9a-f]{64}\.[0-9a-f]{32}")


class CheckpointFile(Part):
    """A file of a checkpoint."""

    bytes: NonNegativeInt
    """Its size."""
    sha256: Digest
    """Its checksum."""
    modified_ns: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)]
    """When it was written, in nanoseconds since the epoch; programs find their last file by it."""
    content: FileName
    """The name of its content in the folder `files`."""
    rank: NonNegativeInt = 0
    """The worker that wrote it, which alone removes it as long as another one has it."""


def _check_paths(files: dict[str, CheckpointFile]) -> dict[str, CheckpointFile]:
    folders = {parent.as_posix() for path in files for parent in PurePosixPath(path).parents}
    if both := folders.intersection(files):
        raise ValueError(f"{min(both)!r} is both a file and a folder")
    return files


class ScriptCheckpoint(Document):
    """The files that a script had in its folder for checkpoints when it stored them."""

    KIND: ClassVar[str] = "script checkpoint"

    number: PositiveInt
    """The number of the checkpoint, higher than that of any before."""
    group: PositiveInt
    """The number of the worker group that wrote it."""
    workers: PositiveInt
    """How many workers that group had."""
    saved_at: float
    """When it was written, in seconds since the epoch."""
    metrics: Numbers = {}
    """The last value of each metric that rank 0 had reported."""
    files: Annotated[dict[RelativePath, CheckpointFile], AfterValidator(_check_paths)]
    """The files, by their paths in the folder."""


def index_uri(root: str, number: int, group: int) -> str:
    """Return where the index of a checkpoint of a group is stored."""
    return uris.join(checkpoint_uri(root, number, group), INDEX)


def content_uri(root: str, name: str) -> str:
    """Return where the content of a file is stored."""
    return uris.join(root, CONTENTS, name)


def name_content(group: int, number: int, sha256: str) -> str:
    """Return the name of the content of a file that is first in checkpoint `number` of a group."""
    return f"{group:08d}-{number:08d}-{sha256}"


def find_unused(names: Iterable[str], checkpoints: Iterable[ScriptCheckpoint], group: int, number: int) -> list[str]:
    """Return the contents that no checkpoint needs any more, when a group has written one.

    Those of later groups, and of later checkpoints of the group, may be of one that is being written.

    Args:
        names: The names of files in the folder of contents.
        checkpoints: The checkpoints that are kept.
        group: The group.
        number: The checkpoint that it has written.
    """
    used = {file.content for checkpoint in checkpoints for file in checkpoint.files.values()}
    matches = {name: _CONTENT.fullmatch(name) or _STAGED.fullmatch(name) for name in names if name not in used}
    return [name for name, match in matches.items() if match and (int(match[1]), int(match[2])) < (group, number)]
