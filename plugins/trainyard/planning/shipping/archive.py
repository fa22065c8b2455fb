"""The code archive: Trainyard's own code and the user's packages in one zip file.

The content alone decides the bytes of the archive and, by a hash of them, its name: the same files give the same
archive on any machine.
"""

from __future__ import annotations

import hashlib
import io
import os
import socket
import stat
import tempfile
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from trainyard.errors import UnavailableError
from trainyard.planning.shipping.packages import package_files, shipped_files

PACKAGE = Path(__file__).parents[2]
DRIVER = PACKAGE / "backends" / "driver.py"
SHIPPED_MODULES = ("__init__.py", "deadlines.py", "errors.py", "progress_bar.py", "stalls.py", "text.py")
SHIPPED_PACKAGES = ("files", "schemas", "trainer", "etl")
_EPOCH = (1980, 1, 1, 0, 0, 0)


def build_archive(import_paths: Iterable[str], dag_file: Path, folder: Path) -> Path:
    """Write the archive of Trainyard's code, of each package that an import path names, and of what these import.

    Args:
        import_paths: `module:name` or `module` of user code.
        dag_file: The DAG's file. User packages are searched for in its folder and in the folders above.
        folder: Where the archive is written, unless one with the same content is there.

    Returns:
        The path of the archive.

    Raises:
        TrainyardError: A package is missing, is too large, or is named `trainyard`.
    """
    files = own_code()
    for path in import_paths:
        files |= shipped_files(path, dag_file)
    data = zip_files(files)
    target = folder / f"trainyard-code-{hashlib.sha256(data).hexdigest()[:16]}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        staged = folder / f".{target.name}.{uuid.uuid4().hex}"
        staged.write_bytes(data)
        os.replace(staged, target)
    return target


def archive_folder(root: Path | None = None) -> Path:
    """Return the folder for archives on this machine, which only this user can read and write.

    Args:
        root: The directory that it is created in, by default the one for temporary files.

    Raises:
        UnavailableError: There is a file of its name in which another user could put code; not so on each machine.
    """
    folder = (root or Path(tempfile.gettempdir())) / f"trainyard-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise UnavailableError(
            f"{folder} on {socket.gethostname()} is not a directory that only user {os.getuid()} can use, so the code "
            "in it may be of another user. Remove it there, or set TMPDIR to another directory."
        )
    return folder


def zip_files(files: Mapping[str, Path]) -> bytes:
    """Return a zip of `files` (name in the archive -> file) that depends on their names and content alone.

    Folders with modules have an `__init__.py` there: Python before 3.13 imports nothing from others in a zip file.
    """
    buffer = io.BytesIO()
    modules = [PurePosixPath(name) for name in files if name.endswith(".py")]
    packages = {str(folder / "__init__.py") for module in modules for folder in module.parents[:-1]}
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in sorted(packages.union(files)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            packed.writestr(entry, files[name].read_bytes() if name in files else b"")
    return buffer.getvalue()


def own_code() -> dict[str, Path]:
    """Return the part of `trainyard` that runs on the cluster, by its name in the archive."""
    files = {f"trainyard/{name}": PACKAGE / name for name in SHIPPED_MODULES}
    for name in SHIPPED_PACKAGES:
        files |= package_files(PACKAGE / name, f"trainyard/{name}")
    return files
