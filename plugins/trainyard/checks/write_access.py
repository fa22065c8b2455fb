"""Check that other users cannot write to what applications run, or to the whole storage."""

from __future__ import annotations

import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from trainyard.compat import list_setting
from trainyard.errors import TrainyardError
from trainyard.files import permissions, storage, trial, uris
from trainyard.hooks.trainyard import TrainyardHook
from trainyard.planning.shipping import environment


def check_write_access(conn_id: str) -> str:
    """Return, as the end of a sentence, who can write to what applications run; "" if the storage has no owners.

    Args:
        conn_id: The `trainyard` connection.

    Raises:
        TrainyardError: Others can, or a packed environment is not what its name says.
    """
    settings = TrainyardHook(conn_id).get_conn()
    user = _find_user(settings.storage)
    if user is None:
        return ""
    owners = {user, *list_setting("trainyard", "archive_owners")}
    problems = [
        *_list_folder_problems(settings.storage),
        *_list_archive_problems(settings.storage, settings.environments, owners),
    ]
    if problems:
        raise TrainyardError(
            f"{problems[0]}. What is there runs as {user!r}, or is read as a result of it. Correct the owner and the "
            "mode (chmod, or hdfs dfs -chmod), or name users whom you trust in Airflow's setting `archive_owners` of "
            "section `[trainyard]`."
        )
    if changed := [uri for uri in settings.environments if not environment.is_intact(uri)]:
        raise TrainyardError(
            f"{changed[0]} is not the archive that was packed: its sha256 does not begin as its name does. "
            "Remove it, and run `trainyard environment pack` again."
        )
    names = " or ".join(sorted(owners))
    return f"; packed environments are used if they belong to {names}, and no one else can write to them"


def _find_user(root: str) -> str | None:
    """Return the owner of what this process writes to a storage; None if it has no owners."""
    file = trial.name_trial(root)
    storage.create(file, b"trial")
    try:
        access = permissions.read_access(file)
    finally:
        storage.remove(file)
    return access.owner if access else None


def _list_folder_problems(root: str) -> Iterator[str]:
    """Yield that all users can write to the storage root, or to what says what a job does and whose it is.

    A group that can may be a team.
    """
    for uri in (root, uris.join(root, "runs"), uris.join(root, "owners")):
        with suppress(FileNotFoundError):
            access = permissions.read_access(uri)
            if access and access.mode & stat.S_IWOTH and not access.mode & stat.S_ISVTX:
                closed = access.mode & ~(stat.S_IWGRP | stat.S_IWOTH)
                yield f"{uri} can be written to by other users: its mode is {access.mode:o}, not {closed:o}"


def _list_archive_problems(root: str, packed: Sequence[str], owners: Collection[str]) -> Iterator[str]:
    """Yield what is wrong with each archive, and with the folders of archives."""
    folder = uris.join(root, environment.ARCHIVES_FOLDER)
    found = [folder, *(uris.join(folder, name) for name in storage.list_names(folder))]
    found += [part for uri in packed for part in (uri.rpartition("/")[0], uri)]
    for uri in found:
        with suppress(FileNotFoundError):
            access = permissions.read_access(uri)
            if access and (problem := access.find_problem(owners)):
                yield f"{uri} {problem}"
