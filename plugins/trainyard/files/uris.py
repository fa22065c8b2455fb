"""Names of files and directories: what is a URI, and which one is below which. Nothing is read."""

from __future__ import annotations

import re

from trainyard.errors import TrainyardError
from trainyard.files.filesystems import SCHEME

VALID_NAME = "write a name without colons, '.' and '..', for example 'digits/model', or a URI with all its slashes"
_NOT_IN_NAMES = re.compile(r"[:\x00-\x1f\x7f]")
"""What HDFS has no names with, and what a name has by mistake only."""


def resolve(root: str, name: str) -> str:
    """Return `name` as a URI: unchanged if it is absolute or has a scheme, else a path below `root`.

    Raises:
        TrainyardError: The name is not below `root`.
    """
    if not is_valid_name(name):
        raise TrainyardError(f"{name!r} is not a name below the storage root {root}; {VALID_NAME}.")
    return name if is_absolute(name) else join(root, name)


def is_absolute(name: str) -> bool:
    """Return whether `name` is a URI or an absolute path."""
    return name.startswith("/") or SCHEME.match(name) is not None


def is_valid_name(name: str) -> bool:
    """Return whether `name` is absolute, or stays below the directory that it is resolved against."""
    parts = name.split("/")
    return is_absolute(name) or (any(parts) and not {".", ".."} & {*parts} and not _NOT_IN_NAMES.search(name))


def join(uri: str, *parts: str) -> str:
    """Return `uri` followed by path `parts`.

    Raises:
        TrainyardError: A part leads out of `uri`.
    """
    if any(".." in part.split("/") for part in parts):
        raise TrainyardError(f"{'/'.join(parts)!r} is not below {uri}: it has the part '..'.")
    return "/".join([uri.rstrip("/"), *(part.strip("/") for part in parts)])


def shorten(root: str, uri: str) -> str:
    """Return the name of a URI below `root`; a URI elsewhere as it is."""
    return uri.removeprefix(f"{root}/") if root else uri


def is_below(root: str, uri: str) -> bool:
    """Return whether a URI is below a root; what a document names elsewhere is not followed."""
    return uri.startswith(f"{root.rstrip('/')}/") and ".." not in uri.split("/")


def is_reachable(root: str, uri: str) -> bool:
    """Return whether a URI is below a root, or elsewhere in its storage if that is not this machine's."""
    server = f"{root.partition('://')[0]}://{root.partition('://')[2].partition('/')[0]}"
    return is_below(root, uri) or (not is_local(root) and is_below(server, uri))


def is_local(uri: str) -> bool:
    """Return whether `uri` names a directory of the machine that opens it."""
    return uri.partition("://")[0] in ("file", "local") if "://" in uri else uri.startswith("/")
