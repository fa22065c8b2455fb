"""Upload Spark's jars and the user's archives to storage, once for each content instead of with each submission."""

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
    """Return the settings that name Spark's jars and the user's archives in storage.

    Args:
        root: The storage root, a URI.
        known: The settings so far. Jars that they name are not uploaded.
        spark_home: The Spark installation with the jars.
    """
    changes = {}
    if not any(name in known for name in PROVIDED):
        changes["spark.yarn.archive"] = spark_archive(root, spark_home)
    if ARCHIVES in known:
        changes[ARCHIVES] = ",".join(_upload_archive(root, entry.strip()) for entry in known[ARCHIVES].split(","))
    return changes


def _upload_archive(root: str, entry: str) -> str:
    """Upload a local file of `spark.archives` ("file#name"), named by its sha256, and return the entry for it."""
    uri, mark, name = entry.partition("#")
    if "://" in uri.removeprefix("file://"):
        return entry
    file = Path(uri.removeprefix("file://"))
    if not file.is_file():
        raise TrainyardError(
            f"{ARCHIVES} names {uri}, which is not a file of this machine. Write the path or URI of the archive."
        )
    _, digest = storage.checksum(str(file))
    target = storage.join(root, "environments", f"{digest[:16]}-{file.name}")
    if not storage.exists(target):
        storage.upload(target, file)
    return f"{target}{mark or '#'}{name or file.name}"


def spark_archive(root: str, spark_home: Path) -> str:
    """Return the URI of an archive of the jars in `spark_home`, and upload it if it does not exist.

    The names and sizes of the jars decide its name. Of several concurrent uploads one succeeds.
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
