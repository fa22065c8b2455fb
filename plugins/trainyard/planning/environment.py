"""Spark's jars and the user's archives on the cluster's storage: once for each content, not with each submission."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from trainyard import storage
from trainyard.errors import TrainyardError

PROVIDED = ("spark.yarn.archive", "spark.yarn.jars")
ARCHIVES = "spark.archives"


def settings(root: str, known: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """What tells YARN where Spark's jars are, below `root`, unless `known` settings do; and the archives they name."""
    found = {}
    if not any(name in known for name in PROVIDED):
        found["spark.yarn.archive"] = spark_archive(root, spark_home)
    if ARCHIVES in known:
        found[ARCHIVES] = ",".join(_shipped(root, entry.strip()) for entry in known[ARCHIVES].split(","))
    return found


def _shipped(root: str, entry: str) -> str:
    """An entry of `spark.archives`, "file#name on the nodes"; a local file is put below `root` by its sha256.

    Raises TrainyardError when there is no such file.
    """
    uri, mark, name = entry.partition("#")
    if "://" in uri.removeprefix("file://"):
        return entry
    file = Path(uri.removeprefix("file://"))
    if not file.is_file():
        raise TrainyardError(f"{ARCHIVES} names {uri}, which is no file of this machine. Write where the archive lies.")
    _, digest = storage.checksum(str(file))
    there = storage.join(root, "environments", f"{digest[:16]}-{file.name}")
    if not storage.exists(there):
        storage.upload(there, file)
    return f"{there}{mark or '#'}{name or file.name}"


def spark_archive(root: str, spark_home: Path) -> str:
    """The URI of an archive of the jars in `spark_home`, which is put below `root` if it is not there.

    It is named by the jars' names and sizes. Of several who put it there one wins; the others find it.
    """
    jars = sorted(Path(spark_home, "jars").glob("*.jar"))
    content = "\n".join(f"{jar.name} {jar.stat().st_size}" for jar in jars)
    uri = storage.join(root, "environments", f"spark-{hashlib.sha256(content.encode()).hexdigest()[:16]}.zip")
    if not storage.exists(uri):
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder, "spark.zip")
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
                for jar in jars:
                    packed.write(jar, jar.name)
            storage.upload(uri, archive)
    return uri
