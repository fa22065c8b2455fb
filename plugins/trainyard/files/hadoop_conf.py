"""Hadoop's client configuration, which Spark ships to containers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

from trainyard.errors import TrainyardError

UMASK = "fs.permissions.umask-mode"
_DEFAULT_UMASK = "022"
_BITS = {"r": 4, "w": 2, "x": 1}
_CLASSES = {"u": 64, "g": 8, "o": 1}


def find_folder(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the folder of the client configuration, None if the environment names none."""
    return environ.get("HADOOP_CONF_DIR") or environ.get("YARN_CONF_DIR")


def read_properties(file: Path) -> dict[str, str]:
    """Return the properties in one of Hadoop's XML files."""
    # The administrator's own file, as Hadoop reads it.
    root = ElementTree.parse(file).getroot()  # noqa: S314
    return {str(p.findtext("name")).strip(): (p.findtext("value") or "").strip() for p in root.iter("property")}


def read_site(name: str, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the properties in a file of the client configuration, such as "core-site.xml"; empty if there is none."""
    named = find_folder(environ)
    file = Path(named, name) if named else None
    return read_properties(file) if file and file.exists() else {}


def read_umask(environ: Mapping[str, str] = os.environ) -> int:
    """Return the permissions that new files and directories on HDFS do not have.

    Raises:
        TrainyardError: The configuration has a value that is not valid.
    """
    return parse_umask((read_site("core-site.xml", environ) | read_site("hdfs-site.xml", environ)).get(UMASK, ""))


def parse_umask(text: str) -> int:
    """Return the bits of a value of `fs.permissions.umask-mode`, "022" or "u=rwx,g=rx,o=", the default for "".

    Raises:
        TrainyardError: It is not valid.
    """
    text = text or _DEFAULT_UMASK
    if re.fullmatch("[01]?[0-7]{3}", text):
        return int(text, 8) & 0o777
    kept = 0
    for part in text.split(","):
        match = re.fullmatch(r"\s*([ugoa]*)([+=-])([rwx]*)\s*", part)
        if match is None:
            raise TrainyardError(
                f"{UMASK}={text!r} of Hadoop's client configuration is not valid; write an octal number such as "
                "027, or permissions such as u=rwx,g=rx,o=."
            )
        classes, operation, permissions = match.groups()
        for name in _CLASSES if classes in ("", "a") else set(classes):
            bits = _CLASSES[name] * sum(_BITS[permission] for permission in set(permissions))
            kept = kept & ~(7 * _CLASSES[name]) if operation == "=" else kept
            kept = kept & ~bits if operation == "-" else kept | bits
    return ~kept & 0o777
