"""Try whether files of a directory can be written, read, and created once only."""

from __future__ import annotations

import uuid

from trainyard.errors import summarize
from trainyard.files import storage


def write_error(directory: str) -> str:
    """Return why files of a directory cannot be written and read, "" if they can: one is written, read and removed.

    So it is, too, if the storage does not create a file exclusively, as old servers of S3's protocol. For a directory
    that does not exist the file is written to the nearest one above it.
    """
    try:
        trial = name_trial(directory)
        storage.create(trial, b"trial")  # a full storage still takes empty files
        try:
            storage.read(trial)
            is_exclusive = not _creates(trial)
        finally:
            storage.remove(trial)
        if not is_exclusive:
            return (
                "a file can be created twice, so two writers of one version would both succeed: the server ignores "
                "If-None-Match. Use a server with conditional writes"
            )
    # Each file system raises exceptions of its own.
    except Exception as error:
        return summarize(error)
    return ""


def name_trial(directory: str) -> str:
    """Return the URI of a new file in a directory, or in the nearest one above it that exists."""
    scheme, separator, rest = directory.rpartition("://")
    names = rest.rstrip("/").split("/")
    if storage.renames_directories(directory):
        while len(names) > 1 and not storage.exists(f"{scheme}{separator}{'/'.join(names)}"):
            names.pop()
    return f"{scheme}{separator}{'/'.join([*names, f'.trial-{uuid.uuid4().hex}'])}"


def _creates(uri: str) -> bool:
    try:
        storage.create(uri, b"")
    except FileExistsError:
        return False
    return True
