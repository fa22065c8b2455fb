"""Fetch the jars of Hadoop's daemons, once for each version of the pom and of Hadoop.

The environment variable TRAINYARD_HADOOP_VERSION, for example 3.3.6, replaces the version of Hadoop in the pom.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "trainyard"


def fetch_jars() -> Path:
    """Return the folder of the daemons' jars; Maven fetches them once for each version of the pom and of Hadoop."""
    pom, version = FOLDER / "pom.xml", os.environ.get("TRAINYARD_HADOOP_VERSION", "")
    folder = get_folder(pom.read_bytes(), version)
    if not folder.exists():
        if not shutil.which("mvn"):
            raise SystemExit("Maven is needed to fetch Hadoop, and there is no mvn on the PATH; install Maven.")
        staging = folder.with_name(f"{folder.name}.{os.getpid()}")
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={staging}"]
        replaced = [f"-Dhadoop.version={version}"] if version else []
        subprocess.run([*command, *replaced], check=True, stdout=sys.stderr)
        try:
            staging.rename(folder)
        except OSError:
            shutil.rmtree(staging)
    return folder


def get_folder(pom: bytes, version: str) -> Path:
    """Return the folder for the jars of a pom; `version` replaces that of Hadoop, an empty string does not."""
    key = hashlib.sha256(pom + version.encode()).hexdigest()[:12]
    return CACHE / "-".join(["hadoop", *([version] if version else []), key])
