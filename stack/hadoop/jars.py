"""Fetch the jars of a pom, by default those of Hadoop's daemons, once for each version of the pom and of Hadoop.

The environment variable TRAINYARD_HADOOP_VERSION, for example 3.3.6, replaces the version of Hadoop in the pom.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HADOOP = Path(__file__).with_name("pom.xml")
DELTA = HADOOP.parents[1] / "delta" / "pom.xml"
ICEBERG = HADOOP.parents[1] / "iceberg" / "pom.xml"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "trainyard"


def fetch_jars(pom: Path = HADOOP) -> Path:
    """Return the folder of a pom's jars; Maven fetches them once for each version of the pom and of Hadoop."""
    version = os.environ.get("TRAINYARD_HADOOP_VERSION", "")
    folder = get_folder(pom.read_bytes(), version, pom.parent.name)
    if not folder.exists():
        if not shutil.which("mvn"):
            raise SystemExit(
                f"{pom.parent.name}: Maven is needed to fetch its jars, and there is no mvn on the PATH; install Maven."
            )
        staging = folder.with_name(f"{folder.name}.{os.getpid()}")
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={staging}"]
        replaced = [f"-Dhadoop.version={version}"] if version else []
        subprocess.run([*command, *replaced], check=True, stdout=sys.stderr)
        try:
            staging.rename(folder)
        except OSError:
            shutil.rmtree(staging)
    return folder


def get_folder(pom: bytes, version: str, name: str = "hadoop") -> Path:
    """Return the folder for the jars of a pom; `version` replaces that of Hadoop, an empty string does not."""
    key = hashlib.sha256(pom + version.encode()).hexdigest()[:12]
    return CACHE / "-".join([name, *([version] if version else []), key])
