"""Spark's jars on the cluster's storage: put there once for each content, not with each submission."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from trainyard.contract import storage

PROVIDED = ("spark.yarn.archive", "spark.yarn.jars")


def settings(root: str, known: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """What tells YARN where Spark's jars are, below `root`; nothing where `known` settings do already."""
    if any(name in known for name in PROVIDED):
        return {}
    return {"spark.yarn.archive": spark_archive(root, spark_home)}


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
