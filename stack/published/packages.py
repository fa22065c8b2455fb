"""What published scripts import beside the locked packages, in a folder of the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from stack.hadoop.jars import CACHE

REQUIREMENTS = Path(__file__).with_name("requirements.txt")
UV = Path(sys.prefix) / "bin" / "uv"


class MissingPackagesError(Exception):
    """The packages cannot be installed on this machine."""


def install() -> Path:
    """Return the folder with the packages, which scripts have on their PYTHONPATH; install them once.

    Raises:
        MissingPackagesError: They cannot be installed.
    """
    folder = CACHE / f"published-{hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]}"
    if not folder.exists():
        staging = folder.with_name(f"{folder.name}.{os.getpid()}")
        arguments = ["--python", sys.executable, "--target", str(staging), "--no-deps", "-r", str(REQUIREMENTS)]
        process = subprocess.run(
            [str(UV), "-q", "pip", "install", *arguments], check=False, capture_output=True, text=True
        )
        if process.returncode:
            shutil.rmtree(staging, ignore_errors=True)
            raise MissingPackagesError((process.stderr.strip().splitlines() or ["uv failed without output"])[-1])
        staging.rename(folder)
    return folder
