"""The repositories of published scripts: fetched once at a pinned commit, and unpacked as far as scripts need them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

from stack.hadoop.jars import CACHE

MIRROR = "TRAINYARD_MIRROR"
"""The variable that names a folder with git directories OWNER/NAME, for a machine without a network."""


class MissingRepositoryError(Exception):
    """A repository cannot be fetched on this machine."""


@dataclass(frozen=True)
class Repository:
    """A repository on GitHub.

    Attributes:
        name: OWNER/NAME.
        commit: The commit that is run.
    """

    name: str
    commit: str


def unpack(repository: Repository, folder: str, target: Path) -> None:
    """Write the files of a folder of a repository, at its commit, below `target`.

    Args:
        repository: The repository.
        folder: The folder, an empty string for all files.
        target: Where the root of the repository is written.

    Raises:
        MissingRepositoryError: The commit cannot be fetched.
    """
    paths = [folder] if folder else []
    files = _run("-C", str(_fetch(repository)), "archive", repository.commit, *paths)
    with tarfile.open(fileobj=io.BytesIO(files)) as opened:
        opened.extractall(target, filter="data")


def _fetch(repository: Repository) -> Path:
    """Return a git directory that has the commit of a repository."""
    if mirror := os.environ.get(MIRROR):
        found = Path(mirror) / repository.name
        if not found.exists():
            raise MissingRepositoryError(f"{MIRROR}={mirror}: there is no {repository.name}")
        return found
    folder = CACHE / "published" / f"{repository.name.replace('/', '-')}-{repository.commit[:12]}.git"
    if not folder.exists():
        staging = folder.with_name(f"{folder.name}.{os.getpid()}")
        url = f"https://github.com/{repository.name}"
        try:
            _run("init", "-q", "--bare", str(staging))
            _run("-C", str(staging), "fetch", "-q", "--depth", "1", url, repository.commit)
            staging.rename(folder)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return folder


def _run(*arguments: str) -> bytes:
    command, environment = ["git", *arguments], os.environ | {"GIT_TERMINAL_PROMPT": "0"}
    process = subprocess.run(command, env=environment, check=False, capture_output=True)
    if process.returncode:
        lines = process.stderr.decode(errors="replace").strip().splitlines()
        raise MissingRepositoryError(lines[-1] if lines else "git failed without output")
    return process.stdout
