"""Share the classes of Spark's JVM between the local applications of a machine (JEP 350, dynamic CDS archives).

The first application writes the classes that it loaded to an archive when it ends, which takes it some seconds. Later
ones map them instead of parsing some 10,000 class files, so that their JVM starts in about half the time. The JVM
itself checks an archive against the class path, and ignores one of another Spark.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

OPTIONS = "SPARK_SUBMIT_OPTS"
MAX_ARCHIVES = 3
"""How many archives are kept, of 150 MB each: one for every Java and Spark that are used."""
DAY = 24 * 60 * 60
"""The age in seconds at which an archive that was never finished is removed: its task was killed."""


class ClassSharing:
    """The archive of classes for one Java and one Spark.

    Args:
        env: The environment of spark-submit. Options for sharing that it sets already are left alone.
        folder: Where archives are kept.
    """

    def __init__(self, env: Mapping[str, str], folder: Path) -> None:
        self._options = env.get(OPTIONS, "")
        self._archive = _name_archive(env, folder)
        self._written: Path | None = None

    def prepare(self) -> dict[str, str]:
        """Return the environment variables to add; none where classes cannot be shared."""
        if self._archive is None or "-Xshare" in self._options or "Archive" in self._options:
            return {}
        try:
            self._archive.parent.mkdir(parents=True, exist_ok=True)
            os.utime(self._archive)
            option = f"-XX:SharedArchiveFile={self._archive}"
        except FileNotFoundError:
            self._written = self._archive.with_name(f".{self._archive.name}.{uuid.uuid4().hex}")
            option = f"-XX:ArchiveClassesAtExit={self._written}"
        except OSError:
            return {}
        return {OPTIONS: f"{self._options} {option} -Xlog:cds*=off".strip()}

    def finish(self, succeeded: bool) -> None:
        """Keep the archive that the application has written; remove it if the application failed.

        A JVM that maps a part of an archive crashes, so that one is visible only when it is whole and on the disk. An
        error here costs the next application some seconds, and is not an error of this one.
        """
        if self._archive is None or self._written is None or not self._written.exists():
            return
        with suppress(OSError):
            if succeeded:
                self._keep(self._written, self._archive)
            else:
                self._written.unlink()

    def _keep(self, written: Path, archive: Path) -> None:
        with written.open("rb") as file:
            os.fsync(file.fileno())
        written.replace(archive)
        archives = sorted(archive.parent.glob("spark-*.jsa"), key=lambda file: file.stat().st_mtime)
        abandoned = [file for file in archive.parent.glob(".spark-*.jsa.*") if file.stat().st_mtime < time.time() - DAY]
        for unused in (*archives[:-MAX_ARCHIVES], *abandoned):
            with suppress(FileNotFoundError):
                unused.unlink()


def cache_folder(env: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of this user for files that can be made again."""
    return Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "/nonexistent"), ".cache")) / "trainyard"


def _name_archive(env: Mapping[str, str], folder: Path) -> Path | None:
    """Return the path of the archive for the Java and the Spark of `env`, None for a Java that cannot share classes."""
    bin_folder = f"{env['JAVA_HOME']}/bin" if env.get("JAVA_HOME") else env.get("PATH")
    java = shutil.which("java", path=bin_folder)
    if java is None or "SPARK_HOME" not in env:
        return None
    base = Path(java).resolve().parents[1] / "lib" / "server" / "classes.jsa"
    jars = Path(env["SPARK_HOME"], "jars").resolve()
    if not base.exists() or not jars.exists():
        return None
    versions = [(str(path), path.stat().st_mtime_ns) for path in (base, jars)]
    return folder / f"spark-{hashlib.sha256(repr(versions).encode()).hexdigest()[:16]}.jsa"
