"""Folders of this machine that only this user can write to, for what is read again without a doubt."""

from __future__ import annotations

import getpass
import os
import stat
import tempfile
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from trainyard.errors import TrainyardError

COMPILED = "TORCHINDUCTOR_CACHE_DIR"
"""torch's variable for what torch.compile has compiled, which it unpickles and runs."""


def name_folder(kind: str, environ: Mapping[str, str] = os.environ) -> Path:
    """Return a folder for files of a kind: on YARN one of the application, which YARN removes at its end."""
    if yarn_folders := environ.get("LOCAL_DIRS"):
        return Path(yarn_folders.split(",")[0], f"trainyard-{kind}")
    return Path(tempfile.gettempdir(), f"trainyard-{kind}-{getpass.getuser()}")


def create_private(folder: Path, purpose: str) -> None:
    """Create a folder for this user alone, or check that no other user can write to it.

    Args:
        folder: The folder.
        purpose: What it is, for the error.

    Raises:
        TrainyardError: Other users own it or can write to it.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        problem = "is not a directory"
    elif status.st_uid != os.geteuid():
        problem = f"belongs to the user with id {status.st_uid}, not to {os.geteuid()}, who runs this worker"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        problem = f"can be written to by other users (its mode is {stat.S_IMODE(status.st_mode):o}, not 700)"
    else:
        return
    raise TrainyardError(
        f"{folder}, the folder for {purpose}, {problem}: files in it may belong to other users. "
        "Remove it, or set TMPDIR to a directory of your own."
    )


def compile_privately(environ: MutableMapping[str, str] = os.environ) -> None:
    """Have torch.compile keep its files in a folder of this user, unless the environment names one.

    By default it uses a folder of a known name below /tmp, whoever has created it.

    Raises:
        TrainyardError: Other users own the folder or can write to it.
    """
    if COMPILED not in environ:
        folder = name_folder("compiled", environ)
        create_private(folder, "what torch.compile has compiled")
        environ[COMPILED] = str(folder)
