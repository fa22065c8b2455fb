"""Owners and modes of files in storage: what other users can write to is not run.

Object stores have neither; who may write to a bucket is decided there.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from fsspec.implementations.local import LocalFileSystem

from trainyard.files.filesystems import locate

_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class Access(NamedTuple):
    """The owner of a file or directory, its mode, and whether it is a directory."""

    owner: str
    mode: int
    is_directory: bool

    def find_problem(self, owners: Collection[str]) -> str:
        """Return why users other than `owners` can change what is there, "" if they cannot.

        In a directory with the sticky bit others can add files, and not replace those of its owner.
        """
        if self.owner not in owners:
            return f"belongs to user {self.owner!r}, not to {' or '.join(map(repr, sorted(owners)))}"
        if self.mode & _OTHERS and not (self.is_directory and self.mode & stat.S_ISVTX):
            return f"can be written to by other users: its mode is {self.mode:o}, not {self.mode & ~_OTHERS:o}"
        return ""


def read_access(uri: str) -> Access | None:
    """Return who owns a file or directory, and who may write to it; None if the storage does not have that.

    Raises:
        FileNotFoundError: There is none.
    """
    fs, path = locate(uri)
    if isinstance(fs, LocalFileSystem):
        status = Path(path).stat()
        return Access(_name_user(status.st_uid), stat.S_IMODE(status.st_mode), stat.S_ISDIR(status.st_mode))
    info = fs.info(path)
    owner, mode = info.get("owner"), info.get("permission")
    return Access(owner, mode, info["type"] == "directory") if owner and isinstance(mode, int) else None


def deny_others(uri: str) -> None:
    """Allow only the owner of a file or directory to write to it, if it has an owner."""
    access = read_access(uri)
    if access and access.mode & _OTHERS:
        fs, path = locate(uri)
        (os if isinstance(fs, LocalFileSystem) else fs).chmod(path, access.mode & ~_OTHERS)


def _name_user(uid: int) -> str:
    with suppress(KeyError):
        return pwd.getpwuid(uid).pw_name
    return str(uid)
