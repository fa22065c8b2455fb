"""Fetch the jars of Hadoop's daemons, once for each version of the pom."""

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
    """Return the folder of the daemons' jars; Maven fetches them once for each version of the pom."""
    pom = FOLDER / "pom.xml"
    folder = CACHE / f"hadoop-{hashlib.sha256(pom.read_bytes()).hexdigest()[:12]}"
    if not folder.exists():
        if not shutil.which("mvn"):
            raise SystemExit("Maven is needed to fetch Hadoop, and there is no mvn on the PATH; install Maven.")
        staging = folder.with_name(f"{folder.name}.{os.getpid()}")
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={staging}"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        try:
            staging.rename(folder)
        except OSError:
            shutil.rmtree(staging)
    return folder
